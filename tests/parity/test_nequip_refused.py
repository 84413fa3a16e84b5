"""Options that Clebsch does not have are refused by name, before anything is written."""

from __future__ import annotations

import pytest
import torch

import cases
import upstream
from clebsch import export
from clebsch.errors import ClebschError, ExportRefused

FULL = dict(cases.CASES["layers-that-differ"])
LENNARD_JONES = {"_target_": "nequip.nn.pair_potential.LennardJones", "lj_sigma": 1.0, "lj_epsilon": 0.1}
EVEN = dict(FULL, feature_irreps_hidden=["6x0e+3x1e", "4x0e+2x1e", "7x0e"])
CATEGORIES = [{"field": "total_charge", "num_features": 2, "min": -1, "max": 1}]

REFUSED = {
    "convnet_nonlinearity_type": dict(FULL, convnet_nonlinearity_type="norm"),
    "convnet_nonlinearity_scalars": dict(FULL, convnet_nonlinearity_scalars={"e": "ssp", "o": "tanh"}),
    "convnet_nonlinearity_gates": dict(FULL, convnet_nonlinearity_gates={"e": "tanh", "o": "tanh"}),
    "convnet_resnet": dict(FULL, feature_irreps_hidden=["6x0e+3x1o"] * 2 + ["7x0e"], convnet_resnet=True),
    "learnable_shift": dict(FULL, learnable_shift=True),
    "readout_mlp_nonlinearity": cases.small(readout_mlp_hidden_layers_depth=1, readout_mlp_nonlinearity="mish"),
    "irreps_edge_sh": dict(EVEN, irreps_edge_sh="0e+1e"),
    "LennardJones": cases.small(pair_potential=LENNARD_JONES),
    "ZBL units": cases.small(pair_potential={**cases.ZBL, "units": "real"}),
}


def refused(model, tmp_path, option):
    with pytest.raises(ExportRefused, match=option) as caught:
        export.nequip(model, tmp_path / "out.pt")
    assert caught.value.option == option
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", REFUSED)
def test_option(option, tmp_path):
    refused(upstream.build(**REFUSED[option]), tmp_path, option)


def test_categorical_graph_field_embed(tmp_path):
    model = upstream.build(**cases.small())
    network = model.model.func
    network.type_embed.do_categorical_graph_field_embed = True
    refused(model, tmp_path, "categorical_graph_field_embed")


def test_unknown_module(tmp_path):
    class Surprise(torch.nn.Identity):
        pass

    model = upstream.build(**cases.small())
    model.model.func.add_module("surprise", Surprise())
    refused(model, tmp_path, "Surprise")


def test_unknown_wrapper(tmp_path):
    refused(torch.nn.Sequential(), tmp_path, "Sequential")


def test_several_models(tmp_path):
    model = upstream.build(**cases.small())
    refused(torch.nn.ModuleDict({"a": model, "b": model}), tmp_path, "several models")


def test_bad_arguments(tmp_path):
    model = upstream.build(**cases.small())
    with pytest.raises(ClebschError, match="float32 or float64, got 'float16'"):
        export.nequip(model, tmp_path / "out.pt", dtype="float16")
    with pytest.raises(ClebschError, match="existing folder"):
        export.nequip(model, tmp_path / "absent" / "out.pt")
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(ClebschError, match="got the folder"):  # before the model is looked at
        export.nequip(tmp_path / "absent.ckpt", tmp_path / "folder.pt")
    (tmp_path / "folder.pt").rmdir()
    with pytest.raises(ClebschError, match="within nan of the radial network"):
        export.nequip(model, tmp_path / "out.pt", radial_tolerance=float("nan"), verify=False)
    with pytest.raises(ClebschError, match="no such file"):
        export.nequip(tmp_path / "absent.ckpt", tmp_path / "out.pt")
    (tmp_path / "text.ckpt").write_text("not a checkpoint")
    with pytest.raises(ClebschError, match="nequip could not read"):
        export.nequip(tmp_path / "text.ckpt", tmp_path / "out.pt")
    for destination in (tmp_path / "text.ckpt", tmp_path / "folder" / ".." / "text.ckpt"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(ClebschError, match="expected another file to write than is read"):
            export.nequip(tmp_path / "text.ckpt", destination)
        with pytest.raises(ClebschError, match="expected another file to write than is read"):
            export.nequip(model, destination, extrapolation=export.Extrapolation(tmp_path / "text.ckpt"))
    (tmp_path / "folder").rmdir()
    assert (tmp_path / "text.ckpt").read_text() == "not a checkpoint"
    with pytest.raises(ClebschError, match="model: expected a model or the name of its file, got OrderedDict"):
        export.nequip(model.state_dict(), tmp_path / "out.pt")
    with pytest.raises(ClebschError, match="radial_tolerance: expected a number, got '1e-3'"):
        export.nequip(model, tmp_path / "out.pt", radial_tolerance="1e-3")
    for elements, got in (("OH", "the text 'OH'"), ([1], "got 1")):
        with pytest.raises(ClebschError, match=f"elements: expected .*{got}"):
            export.mace(tmp_path / "absent.model", tmp_path / "out.pt", elements=elements)
    assert [p.name for p in tmp_path.iterdir()] == ["text.ckpt"]


def test_failed_check_leaves_the_old_file(tmp_path, monkeypatch):
    from clebsch.export import backend

    out = tmp_path / "out.pt"
    out.write_bytes(b"old")

    def fail(scripted, text):
        raise OSError("disk full")

    monkeypatch.setattr(backend, "_archive", fail)
    with pytest.raises(OSError, match="disk full"):
        export.nequip(upstream.build(**cases.small()), out, verify=False)
    assert out.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_clebsch_file_is_told_from_one_of_upstream(exported):
    from clebsch.export import from_nequip

    with pytest.raises(ClebschError, match="is a Clebsch model file already"):
        from_nequip.load(exported("zbl-cutoffs"))
