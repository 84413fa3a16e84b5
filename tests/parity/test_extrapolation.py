"""Grades of extrapolation: export, the op, files, ASE (docs/uncertainty.md)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.build import bulk

from clebsch import grade, library
from clebsch.ase import ClebschCalculator
from clebsch.batch import Evaluator
from clebsch.errors import ClebschError
from clebsch.export import backend
from clebsch.export.extrapolation import Extrapolation, graded
from clebsch.features import atom_features, read_structures
from clebsch.model_file import read_metadata
from graded_models import describe, structures, write_graded
from untrusted import changed, records, refused

pytestmark = pytest.mark.usefixtures("needs_library")
KINDS = [(g, pooling) for g in grade.GRADES for pooling in grade.POOLINGS if (g, pooling) != ("squares", "element")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The file of a graded model by family, grade and pooling, written once."""
    folder = tmp_path_factory.mktemp("graded")

    def get(family: str = "nequip", grade_: str = "leverage", pooling: str = "all", dtype: str = "float64") -> Path:
        path = folder / f"{family}-{grade_}-{pooling}-{dtype}.pt"
        if not path.exists():
            write_graded(path, family, dtype, grade=grade_, pooling=pooling)
        return path

    return get


def grades(path: Path, atoms: list, **options) -> np.ndarray:
    found = Evaluator(path, "cpu", **options)(atoms, forces=False, stress=False, outputs=["extrapolation"])
    return np.concatenate(found.outputs["extrapolation"])


def dense_formula(training: np.ndarray, features: np.ndarray, ridge: float) -> np.ndarray:
    """n f^T (F^T F / n + ridge)^-1 f / R, without an eigenvector in sight."""
    covariance = training.T @ training / len(training)
    inverse = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
    return np.einsum("ni,ij,nj->n", features, inverse, features) / np.trace(covariance @ inverse)


@pytest.mark.parametrize("family", ["nequip", "mace", "allegro"])
@pytest.mark.parametrize("pooling", grade.POOLINGS)
def test_leverage_is_the_dense_formula(model, family: str, pooling: str) -> None:
    path = model(family, "leverage", pooling)
    training, kinds = atom_features(structures(20), path)
    probe, probe_kinds = atom_features(structures(3, seed=9), path)
    assert training.shape[1] == {"nequip": 8, "mace": 5, "allegro": 4}[family]  # not MACE's energy so far
    got = grades(path, structures(3, seed=9))
    for t in (0, 1):
        mine = kinds == t if pooling == "element" else slice(None)
        covariance = training[mine].T @ training[mine] / len(training[mine])
        ridge = 1e-8 * np.linalg.eigvalsh(covariance)[-1]
        expected = dense_formula(training[mine], probe[probe_kinds == t], ridge)
        assert np.abs(got[probe_kinds == t] / expected - 1).max() < 1e-7  # the inverse has a condition of 1e8
    assert grades(path, structures(20)).mean() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(("grade_", "pooling"), KINDS)
def test_runs_agree_with_the_reference(model, grade_: str, pooling: str) -> None:
    """Both grades and poolings, in a padded run as on a GPU too, and the metadata's summary of the training set."""
    path = model("nequip", grade_, pooling)
    training, kinds = atom_features(structures(20), path)
    reference = grade.fit(training, kinds, 2, grade_, "auto", pooling)
    expected = reference.of(*atom_features(structures(3, seed=9), path))
    for device in ("cpu", "cpu:padded"):
        found = Evaluator(path, device)(structures(3, seed=9), outputs=["extrapolation"])
        assert np.abs(np.concatenate(found.outputs["extrapolation"]) / expected - 1).max() < 1e-10
    said = read_metadata(path)["extrapolation"]
    own = grades(path, structures(20))
    assert said["counts"] == [120, 120] and said["pooling"] == pooling and said["grade"] == grade_
    assert said["maximum"] == pytest.approx(own.max()) and said["q99"] == pytest.approx(np.quantile(own, 0.99))
    assert said["q9999"] == pytest.approx(np.quantile(own, 0.9999))
    if grade_ == "maxvol":
        assert own.max() <= 1.01 + 1e-9


def test_energies_and_forces_are_those_of_the_plain_file(model, tmp_path: Path) -> None:
    plain = tmp_path / "plain.pt"
    for family in ("nequip", "mace", "allegro"):
        backend.write(describe(family), plain, "float64")
        probe = structures(2, seed=4)
        without = Evaluator(plain, "cpu")(probe)
        for outputs in ([], ["extrapolation"]):
            found = Evaluator(model(family), "cpu")(probe, outputs=outputs)
            assert np.array_equal(found.energies, without.energies)
            assert all(np.array_equal(a, b) for a, b in zip(found.forces, without.forces, strict=True))


def test_squares_by_the_formula() -> None:
    """The leverage of 1, whitened features and their squares; the mean is 1; elements by themselves are refused."""
    random = np.random.default_rng(3)
    rows, kinds = random.normal(size=(4000, 7)) * np.geomspace(1, 1e-2, 7), random.integers(2, size=4000)
    made = grade.fit(rows, kinds, 2, "squares")
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    white = rows @ (vectors / np.sqrt(values + 1e-8 * values[-1]))
    wide = np.concatenate([np.ones((len(rows), 1)), white, white**2], axis=1)
    expected = np.einsum("ij,jk,ik->i", wide, np.linalg.pinv(wide.T @ wide / len(wide)), wide) / 15
    got = made.of(rows, kinds)
    assert np.abs(got / expected - 1).max() < 1e-5 and got.mean() == pytest.approx(1.0)
    with pytest.raises(ClebschError, match="pooling all"):
        grade.fit(rows, kinds, 2, "squares", pooling="element")


def test_the_grade_that_is_not_chosen() -> None:
    """Squares need atoms for each of their features."""
    random = np.random.default_rng(4)
    enough = grade.SQUARES_ATOMS * 7
    rows, kinds = random.normal(size=(enough, 3)), random.integers(2, size=enough)
    assert grade.fit(rows, kinds, 2).grade == "squares"
    assert grade.fit(rows[1:], kinds[1:], 2).grade == "leverage"
    assert grade.fit(rows, kinds, 2, pooling="element").grade == "leverage"


def test_float32_and_strange_atoms(model) -> None:
    path = model(dtype="float32")
    probe = structures(3, seed=9)
    double, single = grades(path, probe, dtype="float64"), grades(path, probe)
    assert np.abs(single / double - 1).max() < 1e-2
    squeezed = structures(1, seed=2)[0]
    squeezed.set_cell(0.5 * squeezed.cell.array, scale_atoms=True)
    assert grades(path, [squeezed]).max() > 3 * read_metadata(path)["extrapolation"]["maximum"]


def test_rotation_and_order_change_nothing(model) -> None:
    path = model("mace")
    atoms = structures(1, seed=3)[0]
    turned = atoms.copy()
    turned.rotate(37.0, (1, 2, 3), rotate_cell=True)
    order = np.random.default_rng(0).permutation(len(atoms))
    before = grades(path, [atoms])
    assert np.abs(grades(path, [turned]) / before - 1).max() < 1e-9
    assert np.abs(grades(path, [atoms[order]]) / before[order] - 1).max() < 1e-9


def test_elements_never_seen(tmp_path: Path, caplog) -> None:
    """A type without training atoms is infinite, and the export says so."""
    path = write_graded(tmp_path / "oxygen.pt", training=structures(10, symbols="O"))
    assert "no structure has H" in caplog.text
    probe = structures(1, seed=5)[0]
    found = grades(path, [probe])
    assert np.isinf(found[probe.numbers == 1]).all() and np.isfinite(found[probe.numbers == 8]).all()


def test_calculator(model) -> None:
    """Given when asked for, by property or for every step; a model without a grade refuses."""
    atoms = structures(1, seed=6)[0]
    calc = ClebschCalculator(model(), "cpu")
    atoms.calc = calc
    atoms.get_forces()
    assert "extrapolation" not in calc.results
    asked = calc.get_property("extrapolation", atoms)
    assert np.array_equal(asked, grades(model(), [atoms]))
    always = ClebschCalculator(model(), "cpu", extrapolation=True)
    for wanted in (["energy"], ["energy", "forces", "stress"], ["energy", "forces", "stresses"]):
        always.calculate(atoms, wanted)
        assert np.array_equal(always.results["extrapolation"], asked)
        calc.calculate(atoms, wanted)
        for name, value in calc.results.items():
            assert np.array_equal(always.results[name], value), name


def test_without_a_grade(tmp_path: Path) -> None:
    plain = tmp_path / "plain.pt"
    backend.write(describe("nequip"), plain, "float64")
    with pytest.raises(ClebschError, match="expected a model file with a grade"):
        ClebschCalculator(plain, "cpu", extrapolation=True)
    with pytest.raises(ClebschError, match="expected an output among atomic_energy, got 'extrapolation'|extrapolation"):
        grades(plain, structures(1))


def test_features_of_allegro_make_its_energy(model) -> None:
    """Energy = features times the readout's last matrix, shifted; the same in a padded run as on a GPU."""
    path, probe = model("allegro"), structures(3, seed=9)
    description = describe("allegro")
    description.pair = None
    backend.write(description, path.with_name("no-pair.pt"), "float64")
    features, kinds = atom_features(probe, path)
    last = description.layers[0].readout[-1].flatten().numpy()
    found = Evaluator(path.with_name("no-pair.pt"), "cpu")(probe)
    energies = features @ last + description.shift.numpy()[kinds]
    assert np.abs(energies - np.concatenate(found.atomic_energies)).max() < 1e-9
    reference = grades(path, probe)
    padded = Evaluator(path, "cpu:padded")(probe, outputs=["extrapolation"])
    assert np.abs(np.concatenate(padded.outputs["extrapolation"]) / reference - 1).max() < 1e-9


def test_an_allegro_file_without_its_method_is_refused(model, tmp_path: Path) -> None:
    def rename(content: dict[str, bytes]) -> None:
        for name in content:
            if name.endswith(".py"):
                content[name] = content[name].replace(b"def layer_0_features(", b"def layer_0_others(")

    refused(changed(model("allegro"), tmp_path, rename), "expected a method 'layer_0_features'")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ClebschError, match="no such file"):
        graded(describe("nequip"), "float64", Extrapolation(tmp_path / "none.xyz"))
    with pytest.raises(ClebschError, match="expected elements among O, H, got"):
        graded(describe("nequip"), "float64", Extrapolation(structures(1, symbols="C")))
    with pytest.raises(ClebschError, match="condition number"):
        graded(describe("nequip"), "float64", Extrapolation(structures(2), ridge=1e-20))
    (tmp_path / "bad.xyz").write_text("not a structure\n")
    with pytest.raises(ClebschError, match="ASE could not read"):
        read_structures(tmp_path / "bad.xyz")


def _metadata(**changes):
    def edit(content: dict[str, bytes]) -> None:
        value = json.loads(content["extra/clebsch.json"])
        for key, new in changes.items():
            part = value
            *path, last = key.split("__")
            for name in path:
                part = part[name]
            if new is None:
                del part[last]
            else:
                part[last] = new
        content["extra/clebsch.json"] = json.dumps(value).encode()

    return edit


BAD_METADATA = {
    "counts of one type": (_metadata(extrapolation__counts=[1]), "counts"),
    "negative counts": (_metadata(extrapolation__counts=[-1, 5]), "counts"),
    "other counts": (_metadata(extrapolation__counts=[120, 121]), "grade.counts"),
    "unknown grade": (_metadata(extrapolation__grade="best"), "'leverage', 'maxvol' or 'squares'"),
    "unknown pooling": (_metadata(extrapolation__pooling="both"), "'all' or 'element'"),
    "pooled otherwise": (_metadata(extrapolation__pooling="element"), "grade.transform"),
    "squares of another size": (_metadata(extrapolation__grade="squares"), "grade.transform"),
    "negative ridge": (_metadata(extrapolation__ridge=-1.0), "extrapolation.ridge"),
    "no maximum": (_metadata(extrapolation__maximum=None), "extrapolation.maximum"),
    "not an object": (_metadata(extrapolation=[1]), "an object"),
    "no features": (_metadata(features=None), "in a file that has 'features'"),
    "other features": (_metadata(features__count=7), "grade.transform"),
    "too many features": (_metadata(features__count=5000), "features.count"),
    "output not listed": (_metadata(outputs=["atomic_energy"]), "extrapolation"),
    "of the system": (_metadata(output_kinds__extrapolation="system"), "extrapolation"),
}


@pytest.mark.parametrize("name", BAD_METADATA)
def test_bad_metadata_is_refused(model, tmp_path: Path, name: str) -> None:
    edit, match = BAD_METADATA[name]
    refused(changed(model(), tmp_path, edit), match)


def _with_grade(path: Path, change) -> Path:
    """A file that the exporter wrote with another grade module than it would have made."""
    description = graded(describe("nequip"), "float64", Extrapolation(structures(3)))
    change(description.grade)
    backend.write(description, path, "float64")
    return path


def _poke(name: str, place: tuple, value: float):
    def change(made: grade.Grade) -> None:
        array = getattr(made, name)
        array[place] = value

    return change


def _replace(name: str, value: np.ndarray):
    return lambda made: setattr(made, name, value)


BAD_BUFFERS = {
    "nan": (_poke("transform", (0, 1, 2), np.nan), "finite numbers in 'grade.transform'"),
    "infinite": (_poke("covariance", (0, 1, 2), np.inf), "finite numbers in 'grade.covariance'"),
    "too wide": (_replace("transform", np.ones((1, 8, 9))), "1 to 8 columns"),
    "too small": (_replace("transform", np.ones((1, 7, 8))), "grade.transform"),
    "three matrices": (_replace("transform", np.ones((3, 8, 8))), "grade.transform"),
    "covariance of others": (_replace("covariance", np.ones((1, 8, 7))), "grade.covariance"),
}


@pytest.mark.parametrize("name", BAD_BUFFERS)
def test_bad_buffers_are_refused(tmp_path: Path, name: str) -> None:
    change, match = BAD_BUFFERS[name]
    refused(_with_grade(tmp_path / "bad.pt", change), match)


def test_bad_code_is_refused(model, tmp_path: Path) -> None:
    """A file whose method is missing, or whose op is given what it does not take."""

    def code(old: str, new: str):
        def edit(content: dict[str, bytes]) -> None:
            for name in content:
                if name.endswith(".py"):
                    content[name] = content[name].replace(old.encode(), new.encode())

        return edit

    files = records(model())
    assert any(b"clebsch.extrapolation" in text for name, text in files.items() if name.endswith(".py"))
    missing = changed(model(), tmp_path, code("def extrapolation(", "def grades_of("))
    refused(missing, "expected a method 'extrapolation'")
    for old, new in (('"leverage")', '"best")'), ("types, transform", "transform, transform")):
        path = changed(model(), tmp_path, code(old, new))
        if any(old.encode() in text for name, text in files.items() if name.endswith(".py")):
            with pytest.raises(RuntimeError):
                torch.classes.clebsch.Model(str(path), {})


def test_shipped_files_with_and_without_a_grade() -> None:
    """Those of water have one; a file without, as older releases wrote them, loads and says what to do."""
    models = Path(__file__).parents[2] / "models"
    assert library.load().path is not None
    for path in sorted(models.glob("water-*.pt")):
        assert len(atom_features(structures(1), path)[0]) == len(structures(1)[0])
    with pytest.raises(ClebschError, match="Export the model again"):
        atom_features([bulk("C", "diamond", 3.57, cubic=True)], models / "carbon-mace.pt")


def test_info_prints_it(model, capsys) -> None:
    from clebsch.cli import main

    assert main(["info", str(model())]) == 0
    text = capsys.readouterr().out
    assert "extrapolation: leverage, all elements pooled, 8 features" in text and "O 120, H 120" in text
    assert "grades in the training set: median" in text and "99.99% below" in text


def test_export_with_a_training_set(upstream_model, tmp_path: Path) -> None:
    """From upstream to a file that grades, with the export's comparison with upstream."""
    import ase.io

    from clebsch import export

    training = tmp_path / "train.xyz"
    ase.io.write(training, structures(6, symbols="OHC"), format="extxyz")
    out = tmp_path / "model.pt"
    result = export.nequip(upstream_model("lmax-0"), out, extrapolation=export.Extrapolation(training))
    assert result.errors is not None and result.metadata["outputs"] == ["atomic_energy", "extrapolation"]
    assert sum(result.metadata["extrapolation"]["counts"]) == 72
    assert grades(out, structures(6, symbols="OHC")).mean() == pytest.approx(1.0, abs=1e-6)
