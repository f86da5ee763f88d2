"""Screening: kernel candidates rejected on paper."""
