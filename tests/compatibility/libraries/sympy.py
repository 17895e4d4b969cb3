# /// script
# dependencies = ["sympy==1.14.0"]
# ///
# Solves, integrates and computes with as many digits as asked for.
import sympy as sp


def work() -> None:
    x = sp.symbols("x")
    assert sp.solve(x**2 - 5 * x + 6, x) == [2, 3]
    assert sp.integrate(sp.exp(-(x**2)), (x, -sp.oo, sp.oo)) == sp.sqrt(sp.pi)
    assert str(sp.pi.evalf(40)) == "3.141592653589793238462643383279502884197"
    assert sp.factorint(2**64 - 1) == {3: 1, 5: 1, 17: 1, 257: 1, 641: 1, 65537: 1, 6700417: 1}
    matrix = sp.Matrix([[2, 1], [1, 2]])
    assert matrix.eigenvals() == {1: 1, 3: 1}
    assert sp.latex(sp.Rational(1, 3) * x) == r"\frac{x}{3}"
    assert sp.lambdify(x, sp.sin(x) ** 2 + sp.cos(x) ** 2)(0.3) == 1.0
