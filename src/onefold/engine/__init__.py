"""Joins students, teachers, objectives and perturbations; knows only their protocols."""
