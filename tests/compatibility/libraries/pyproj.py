# /// script
# dependencies = ["pyproj==3.7.2"]
# ///
# Looks coordinate systems up in the database that its wheel brings along, in several threads.
from concurrent.futures import ThreadPoolExecutor

from pyproj import CRS, Geod, Transformer


def work() -> None:
    assert CRS.from_epsg(32633).name == "WGS 84 / UTM zone 33N"
    to_utm = Transformer.from_crs("EPSG:4326", "EPSG:32633", always_xy=True)
    east, north = to_utm.transform(15, 52)
    assert abs(east - 500_000) < 0.01 and abs(north - 5_761_038.21) < 0.5, (east, north)

    def back(number):
        own = Transformer.from_crs("EPSG:32633", "EPSG:4326", always_xy=True)
        return round(own.transform(500_000, 5_761_038.21 + number)[0], 6)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(back, range(8))) == {15.0}
    _, _, distance = Geod(ellps="WGS84").inv(13.4, 52.52, 2.35, 48.86)
    assert 870_000 < distance < 885_000, distance
