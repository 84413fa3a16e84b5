"""Clebsch's convolution inside upstream training code: :mod:`clebsch.training.nequip`, :mod:`clebsch.training.mace`."""
