"""Products against JAX; norms; einsum."""

from __future__ import annotations

import pytest

from tests.numpy.oracle import check, lines

pytestmark = pytest.mark.sampled(3)


@pytest.mark.parametrize(
    "expression",
    lines("""
    jnp.dot(f4, f4)
    jnp.dot(f34, f4)
    jnp.dot(f34, f43)
    jnp.dot(f234, f43)
    jnp.dot(f234, f245)
    jnp.dot(2.0, f4)
    jnp.dot(i4, i4)
    jnp.dot(i34, f4)
    jnp.dot(bf4, bf4)
    jnp.dot(h4, f4)
    jnp.dot(f0, f0)
    jnp.dot(f34, f43, precision='highest')
    jnp.dot(bf4, bf4, preferred_element_type=jnp.float32)
    jnp.matmul(f4, f4)
    jnp.matmul(f34, f4)
    jnp.matmul(f4, f43)
    jnp.matmul(f34, f43)
    jnp.matmul(f234, f43)
    jnp.matmul(f234, f245)
    jnp.matmul(f234, f4)
    jnp.matmul(f34, f245)
    jnp.matmul(f4, f245)
    jnp.matmul(f234[:, None], f245[None])
    jnp.matmul(f234[:1], f245)
    jnp.matmul(f04, f43)
    jnp.matmul(f34[:, :0], f43[:0])
    jnp.matmul(i34, i34.T)
    jnp.matmul(c4, c4)
    f34 @ f43
    jnp.vdot(f34, f34)
    jnp.vdot(c4, c4)
    jnp.vdot(i4, f4)
    jnp.inner(f4, f4)
    jnp.inner(f34, f34)
    jnp.inner(f234, f4)
    jnp.inner(2.0, f4)
    jnp.outer(f4, f4)
    jnp.outer(f34, i4)
    jnp.outer(2.0, f4)
    jnp.tensordot(f34, f43)  if False else jnp.tensordot(f34, f43, 1)
    jnp.tensordot(f34, f34)
    jnp.tensordot(f234, f34, axes=([1, 2], [0, 1]))
    jnp.tensordot(f234, f43, axes=(2, 0))
    jnp.tensordot(f4, f4, 0)
    jnp.cross(f33, f33[::-1])
    jnp.cross(f33, f33[0])
    jnp.cross(f33, f33, axis=0)
    jnp.cross(f33[:, :2], f33[::-1, :2]) if False else jnp.cross(f33[0], f33[1])
    jnp.kron(f34, f14)
    jnp.kron(f4, f4)
    jnp.kron(i4, f34)
    jnp.vecdot(f34, f34)
    jnp.vecdot(f34, f34, axis=0)
    jnp.vecdot(c4, c4)
    f34.dot(f4)
    jnp.linalg.norm(f4)
    jnp.linalg.norm(f34)
    jnp.linalg.norm(f34, axis=0)
    jnp.linalg.norm(f34, axis=-1, keepdims=True)
    jnp.linalg.norm(f234, axis=(0, 2))
    jnp.linalg.norm(f34, ord='fro')
    jnp.linalg.norm(f34, 1)
    jnp.linalg.norm(f34, -1)
    jnp.linalg.norm(f34, jnp.inf)
    jnp.linalg.norm(f34, -jnp.inf, keepdims=True)
    jnp.linalg.norm(f4, 1)
    jnp.linalg.norm(f4, 0)
    jnp.linalg.norm(f4, 3)
    jnp.linalg.norm(f4, jnp.inf)
    jnp.linalg.norm(f4, -jnp.inf)
    jnp.linalg.norm(i4)
    jnp.linalg.norm(c4)
    jnp.linalg.norm(c4, 1)
    jnp.linalg.norm(f34, ord=2, axis=1)
    jnp.linalg.norm(2.0)
    jnp.linalg.vector_norm(f34)
    jnp.linalg.vector_norm(f34, axis=1, keepdims=True)
    jnp.linalg.vector_norm(f234, axis=(0, 1))
    jnp.linalg.vector_norm(f34, ord=1, keepdims=True)
    jnp.linalg.matrix_norm(f234)
    jnp.linalg.matrix_power(f33, 3)
    jnp.linalg.matrix_power(f33, 0)
    jnp.linalg.multi_dot([f34, f43, f34])
"""),
)
def test_products(expression):
    check(expression, 2e-5)


@pytest.mark.parametrize(
    ("subscripts", "operands"),
    [
        ("ij,jk->ik", "f34, f43"),
        ("ij,jk", "f34, f43"),
        ("ij->ji", "f34"),
        ("ij->", "f34"),
        ("ii", "f33"),
        ("ii->i", "f33"),
        ("ij->j", "f34"),
        ("i,i->", "f4, f4"),
        ("i,j->ij", "f4, f1"),
        ("bij,bjk->bik", "f234, f245"),
        ("bij,jk->bik", "f234, f43"),
        ("...ij,...jk->...ik", "f234, f245"),
        ("...ij,jk", "f234, f43"),
        ("bij->b", "f234"),
        ("ij,ij->ij", "f34, g34"),
        ("ij,ij->", "f34, g34"),
        ("ij,jk,kl->il", "f34, f43, f34"),
        ("bij,bjk,ij->bk", "f234, f245, f34"),
        ("ij,i->j", "f34, f33[0]"),
        ("ij,kj->", "f34, f34"),
        ("i...->...", "f234"),
        ("...->...", "f34"),
        ("ijk->kji", "f234"),
        ("ij,j->i", "i34, i4"),
        ("ij,j->i", "i34, f4"),
        (" i j , j k -> i k ", "f34, f43"),
        ("i,->i", "f4, s"),
        ("iij->j", "f33[:, :, None] * f4"),
        ("ij,...j->i...", "f34, f234"),
        ("ab,bc,cd,da->", "f34, f43, f34, f43"),
        ("i,i,i->i", "f4, f4, i4"),
        ("i,i->i", "f4, f1"),
    ],
)
def test_einsum(subscripts, operands):
    check(f"jnp.einsum({subscripts!r}, {operands})", 2e-5)


def test_einsum_with_lists_of_axes():
    check("jnp.einsum(f34, [0, 1], f43, [1, 2], [0, 2])", 2e-5)
    check("jnp.einsum(f34, [0, 1], f43, [1, 2])", 2e-5)
    check("jnp.einsum(f234, [Ellipsis, 0, 1], [Ellipsis, 1, 0])", 2e-5)


def test_einsum_precision_and_element_type():
    check("jnp.einsum('i,i->', bf4, bf4, preferred_element_type=jnp.float32)", 1e-6)
    check("jnp.einsum('ij,jk->ik', f34, f43, precision=lax.Precision.HIGHEST)", 2e-5)
