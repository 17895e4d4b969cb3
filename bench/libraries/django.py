# /// script
# dependencies = ["django==5.2.19"]
# ///
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import JsonResponse
from django.test import RequestFactory
from django.urls import path


def add(request, left, right):
    return JsonResponse({"sum": left + right})


urlpatterns = [path("add/<int:left>/<int:right>", add)]


def work() -> None:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="s")
    application = WSGIHandler()
    answer = application.get_response(RequestFactory().get("/add/19/23"))
    assert answer.status_code == 200 and answer.content == b'{"sum": 42}', answer.content
