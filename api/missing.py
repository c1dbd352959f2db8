"""Answers about missing batches and proofs: a page for people, JSON for programs."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from config.error_answers import error_answer
from proving import facts
from queries import query_rows
from queries.api_endpoint import ApiError
from queries.models import Batch, BatchStatus, Query


def find_batch(internal_id: str) -> Batch:
    """Return a batch. Raises `ApiError`: not_found."""
    row = query_rows.find_batch(internal_id)
    if row is None:
        raise ApiError(404, "not_found", "No query found")
    return row


def completed_query(internal_id: str, number: int) -> Query:
    """Return a completed query of a batch, with its batch. Raises `ApiError`: not_found, not_done, rejected."""
    batch = find_batch(internal_id)
    row = batch.queries.filter(position=number - 1).select_related("block").first()
    if row is None:
        raise ApiError(404, "not_found", "No query found")
    if batch.status == BatchStatus.REJECTED:
        raise ApiError(404, "rejected", "The batch was rejected.")
    if not facts.may_be_told(batch, row):
        raise ApiError(404, "not_done", "The query is not completed yet.")
    return row


def finished_batch(internal_id: str) -> Batch:
    """Return a batch that is DONE. Raises `ApiError`: not_found, not_done, rejected."""
    batch = find_batch(internal_id)
    if batch.status == BatchStatus.REJECTED:
        raise ApiError(404, "rejected", "The batch was rejected.")
    if batch.status != BatchStatus.DONE:
        raise ApiError(404, "not_done", "Not all queries of the batch are completed yet.")
    return batch


def prefers_json(request: HttpRequest) -> bool:
    """Return whether a client of a JSON file prefers JSON to a page."""
    return request.get_preferred_type(["application/json", "text/html"]) != "text/html"


def unknown_batch(request: HttpRequest, internal_id: str, *, as_json: bool) -> HttpResponse:
    return not_here(request, internal_id, ApiError(404, "not_found", "No query found"), as_json=as_json)


def not_here(request: HttpRequest, internal_id: str, error: ApiError, *, as_json: bool) -> HttpResponse:
    if as_json:
        response: HttpResponse = error_answer(error.status, error.code, error.sentence)
    else:
        page = "explorer/missing/unknown_batch.html" if error.code == "not_found" else "explorer/missing/not_here.html"
        context = {"internal_id": internal_id, "sentence": error.sentence}
        response = render(request, page, context, status=error.status)
    patch_vary_headers(response, ["Accept"])
    return response
