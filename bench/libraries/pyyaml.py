# /// script
# dependencies = ["pyyaml==6.0.3"]
# ///
import yaml


def work() -> None:
    farm = {"flock": [1, 2, {"name": "wool"}], "open": True}
    assert yaml.safe_load(yaml.safe_dump(farm)) == farm
