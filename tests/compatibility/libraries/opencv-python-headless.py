# /// script
# dependencies = ["opencv-python-headless==5.0.0.93"]
# ///
# Filters and finds with the library's own threads and kernels for this processor.
import cv2
import numpy as np


def work() -> None:
    assert cv2.getNumberOfCPUs() >= 1 and cv2.getNumThreads() >= 1
    picture = np.zeros((480, 640, 3), np.uint8)
    cv2.rectangle(picture, (100, 100), (300, 250), (0, 255, 0), -1)
    cv2.putText(picture, "wool", (20, 60), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (255, 255, 255), 2)
    grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    assert grey[150, 200] == 150
    blurred = cv2.GaussianBlur(picture, (21, 21), 0)
    assert tuple(blurred[175, 200]) == (0, 255, 0)
    found, _ = cv2.findContours(grey[80:], cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[-2:]
    assert max(cv2.contourArea(each) for each in found) == 200 * 150
    for kind in (".png", ".jpg", ".webp"):
        good, kept = cv2.imencode(kind, picture)
        back = cv2.imdecode(kept, cv2.IMREAD_COLOR)
        assert good and back.shape == picture.shape and back[175, 200][1] > 240
    turned = cv2.warpAffine(grey, cv2.getRotationMatrix2D((320, 240), 180, 1), (640, 480))
    assert turned[480 - 150, 640 - 200] == 150
