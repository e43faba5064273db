"""What a program is: avals, forms, variables, equations, traces."""
