# /// script
# dependencies = ["shapely==2.2.0"]
# ///
# Cuts and measures shapes by the geometry library that its wheel brings along.
import math

import numpy as np
import shapely
from shapely.geometry import Point, Polygon, mapping, shape
from shapely.ops import unary_union


def work() -> None:
    square = Polygon([(0, 0), (4, 0), (4, 4), (0, 4)])
    circle = Point(4, 2).buffer(1, quad_segs=64)
    assert math.isclose(circle.area, math.pi, rel_tol=1e-3)
    both = square.intersection(circle)
    assert math.isclose(both.area, math.pi / 2, rel_tol=1e-3)
    assert shape(mapping(square)).equals(square) and shapely.from_wkb(square.wkb).equals(square)
    points = shapely.points(np.random.default_rng(0).uniform(0, 5, (1000, 2)))
    inside = shapely.contains(square, points).sum()
    tree = shapely.STRtree(points)
    assert len(tree.query(square, predicate="contains")) == inside > 500
    assert unary_union([square, circle]).is_valid
