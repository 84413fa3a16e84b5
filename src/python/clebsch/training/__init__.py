"""Clebsch's operations inside upstream training code: :mod:`clebsch.training.nequip`, :mod:`clebsch.training.mace`,
:mod:`clebsch.training.openfold`, :mod:`clebsch.training.boltz`."""
