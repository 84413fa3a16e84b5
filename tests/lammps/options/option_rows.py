"""The table: what users combine pair_style clebsch with, a row an option.

A row is LAMMPS commands. After them the positions that LAMMPS has arrived at are evaluated by option_reference.py, and
LAMMPS's energy of each atom, forces and virial must be the same, on every back end and any number of ranks; or the
option is refused with a text that names the remedy. `happened` makes sure that a row does what it is there for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from lammps_runs import random_system
from option_reference import Excluded, LennardJones
from option_row import Row, Story, Term, always, small_box
from option_systems import corner, wide, with_argon

# --- commands --------------------------------------------------------------------------------------------------------
START = "velocity all create 3000 4711 loop geom\ntimestep 0.0001\n"
#: Lists are built every third step, so that atoms change their ranks and orders.
NVE = START + "fix 1 all nve\n"
LJ = LennardJones(4.0, {(1, 1): (0.01, 2.0), (1, 2): (0.01, 2.0), (2, 2): (0.01, 2.0)})
ARGON = LennardJones(4.0, {(1, 3): (0.01, 2.0), (2, 3): (0.01, 2.0), (3, 3): (0.01, 2.0)})
NULL_PAIR = "pair_style hybrid clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n" + ARGON.commands(
    "lj/cut"
)
OVERLAY = "pair_style hybrid/overlay clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H\n" + LJ.commands(
    "lj/cut"
)
BARRIER = "region top block 8 15 0.5 7.5 0.5 7.5\n"
GROUP = "group some id 1:15\n"
#: What the neighbour settings of all rows are; rows about them give their own after.
LISTS = "neighbor 0.5 bin\nneigh_modify every 3 delay 0 check no\n"
#: LAMMPS's own refusal.
KOKKOS_BINS = {"KOKKOS package only supports 'bin' neighbor lists": lambda place: place.kokkos}
KOKKOS_MINIMIZER = {"Must use a Kokkos-enabled min style": lambda place: place.kokkos}


# --- whether it happened ---------------------------------------------------------------------------------------------
def moved(story: Story) -> bool:
    first = np.stack([story.column(c, 0) for c in "xyz"])
    last = np.stack([story.column(c) for c in "xyz"])
    return first.shape != last.shape or bool(np.abs(last - first).max() > 1e-4)


def grown(story: Story) -> bool:
    return len(story.column("id")) > len(story.column("id", 0))


def retyped(story: Story) -> bool:
    return bool((story.column("type") != story.column("type", 0)).any())


def said(text: str) -> Callable[[Story], bool]:
    return lambda story: text in " ".join(story.text.split())


def within(name: str, low: float, high: float) -> Callable[[Story], bool]:
    return lambda story: low < story.values[name] < high


def low_ids(limit: int) -> Excluded:
    return lambda i, j: (i <= limit) & (j <= limit)


def oxygen_pairs(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Ids of random_system's oxygen are 1, 4, 7 and so on."""
    return (i % 3 == 1) & (j % 3 == 1)


# --- the table -------------------------------------------------------------------------------------------------------
ROWS = [
    Row("newton on", NVE + "run 8", happened=moved),
    Row("newton off", NVE + "run 8", newton="off", happened=moved),
    Row("newton on for pairs, off for bonds", NVE + "run 8", newton="on off", happened=moved),
    Row("newton off for pairs, on for bonds", NVE + "run 8", newton="off on", happened=moved),
    Row(
        "radial exact",
        NVE + "run 4",
        keywords="radial exact",
        # `device cuda` alone: clebsch/kk, which nobody told where to run, takes the CPU and says so.
        refused={
            "there from tables alone (radial table)": lambda place: (
                place.gpu and not place.kokkos and place.kind != "nequip"
            )
        },
        happened=said("radial functions evaluated exactly"),
    ),
    Row("energy interaction", NVE + "run 4", keywords="energy interaction"),
    Row(
        "units real",
        "velocity all create 3000 4711 loop geom\ntimestep 0.1\nfix 1 all nve\nrun 4",
        units="real",
        happened=moved,
    ),
    Row(
        "hybrid, types of another style",
        NVE + "run 8",
        system=with_argon,
        pair=NULL_PAIR,
        terms=(Term(names=("O", "H", None)), Term(ARGON)),
        happened=moved,
    ),
    Row("hybrid/overlay", NVE + "run 8", pair=OVERLAY, terms=(Term(), Term(LJ)), happened=moved),
    Row(
        "hybrid/scaled",
        NVE + "run 8",
        pair="pair_style hybrid/scaled 0.7 clebsch {style} 0.4 lj/cut 4.0\npair_coeff * * clebsch {model} O H\n"
        + LJ.commands("lj/cut"),
        terms=(Term(scale=0.7), Term(LJ, scale=0.4)),
        happened=moved,
    ),
    Row(
        "several instances, hybrid: a model each for O and H",
        NVE + "run 8",
        pair="pair_style hybrid clebsch {style} clebsch {style} lj/cut 4.0\n"
        "pair_coeff * * clebsch 1 {model} O NULL\npair_coeff * * clebsch 2 {mace} NULL H\n"
        "pair_coeff 1 2 lj/cut 0.01 2.0\n",
        terms=(
            Term(names=("O", None)),
            Term("mace", (None, "H")),
            Term(LennardJones(4.0, {(1, 2): (0.01, 2.0)})),
        ),
        happened=moved,
    ),
    Row(
        "several instances, hybrid/overlay: three models added",
        NVE + "run 4",
        pair="pair_style hybrid/overlay clebsch {style} clebsch {style} clebsch {style}\n"
        "pair_coeff * * clebsch 1 {model} O H\npair_coeff * * clebsch 2 {mace} O H\n"
        "pair_coeff * * clebsch 3 {allegro} O H\n",
        terms=(Term(), Term("mace"), Term("allegro")),
        happened=moved,
    ),
    Row("respa, model at the inner level", NVE + "run_style respa 2 2 pair 1\nrun 6", happened=moved),
    Row("respa, model at the outer level", NVE + "run_style respa 2 2 pair 2\nrun 6", happened=moved),
    Row(
        "respa inner, middle, outer",
        NVE + "run_style respa 2 2 inner 1 2.0 3.0 outer 2\nrun 6",
        refused={"Pair style does not support rRESPA inner/middle/outer": always},
    ),
    Row("minimize, cg", "minimize 0 0 6 20", happened=moved),
    Row(
        "minimize, fire",
        "min_style fire\ntimestep 0.0001\nminimize 0 0 8 20",
        refused=KOKKOS_MINIMIZER,
        happened=moved,
    ),
    Row(
        "minimize with box/relax",
        "fix r all box/relax aniso 0.0 vmax 0.002\nminimize 0 0 5 30",
        happened=lambda story: abs(story.values["xhi"] - story.values["xlo"] - 9.0) > 1e-6,
    ),
    Row(
        "NPT",
        START + "fix 1 all npt temp 3000 3000 0.01 aniso 0 0 0.02\nrun 12",
        happened=lambda story: abs(story.values["xhi"] - story.values["xlo"] - 9.0) > 1e-6,
    ),
    Row(
        "NPT, triclinic",
        START + "fix 1 all npt temp 3000 3000 0.01 tri 0 0 0.02\nrun 12",
        system=lambda: small_box(tilt=(2.0, -1.5, 1.0), seed=2),
        happened=lambda story: abs(story.values["xy"] - 2.0) > 1e-6,
    ),
    Row(
        "triclinic",
        NVE + "run 8",
        system=lambda: small_box(tilt=(2.0, -1.5, 1.0), seed=2),
        happened=moved,
    ),
    Row(
        "tilt flips",
        NVE + "fix d all deform 1 xy erate 20 remap x flip yes\nrun 12\nunfix d\nrun 2",
        system=lambda: small_box(tilt=(5.3, 0.5, -0.5), seed=2),
        happened=within("xy", -9.0, 0.0),
    ),
    Row(
        "open and shrink-wrapped boundaries",
        NVE + "run 8",
        system=lambda: small_box(boundary="p f s", seed=4),
        happened=moved,
    ),
    Row(
        "a box smaller than the cutoff",
        NVE + "run 8",
        system=lambda: random_system(atoms=5, lengths=(3.1, 3.3, 2.9), spacing=1.2, seed=6),
        happened=moved,
    ),
    Row("ranks without atoms", NVE + "run 8", system=corner, happened=moved),
    Row("an empty box", "run 0", system=lambda: random_system(atoms=0)),
    Row("run pre no", NVE + "run 4\nrun 5 pre no\nrun 4 pre no post no", happened=moved),
    Row("run every", NVE + "run 9 every 2 'set atom 3 type 1' 'set atom 3 type 2'", happened=moved),
    Row("atoms sorted", "atom_modify sort 2 3.0\n" + NVE + "run 8", happened=moved),
    Row(
        "neighbor multi, comm_modify mode multi",
        "neighbor 0.5 multi\ncomm_modify mode multi\n" + NVE + "run 8",
        refused={"use `comm_modify mode single`": lambda place: place.deep} | KOKKOS_BINS,
        happened=moved,
    ),
    Row(
        "neighbor multi",
        "neighbor 0.5 multi\n" + NVE + "run 8",
        refused={"use `neighbor 0.5 bin`": lambda place: place.deep} | KOKKOS_BINS,
        happened=moved,
    ),
    Row("neighbor nsq", "neighbor 0.5 nsq\n" + NVE + "run 8", refused=KOKKOS_BINS, happened=moved),
    Row(
        "comm_style brick, balance and fix balance shift",
        NVE + "balance 1.0 shift x 10 1.02\nfix b all balance 4 1.0 shift xyz 10 1.02\nrun 12",
        system=wide,
        happened=moved,
    ),
    Row(
        "comm_style tiled, balance and fix balance rcb",
        "comm_style tiled\n" + NVE + "balance 1.0 rcb\nfix b all balance 4 1.0 rcb\nrun 12",
        system=lambda: wide(boundary="p s s"),
        happened=moved,
    ),
    Row(
        "comm_style tiled, triclinic",
        "comm_style tiled\n" + NVE + "fix b all balance 4 1.0 rcb\nrun 8",
        system=lambda: wide(lengths=(12.0, 11.0, 11.0), tilt=(2.0, -1.5, 1.0)),
        happened=moved,
    ),
    Row(
        "displace_atoms, change_box",
        NVE + "run 4\nchange_box all x scale 1.02 y final 0 8.1 remap units box\n"
        "displace_atoms all random 0.05 0.05 0.05 4711\nrun 4",
        happened=within("yhi", 8.09, 8.11),
    ),
    Row(
        "delete_atoms, create_atoms",
        NVE + "run 3\ndelete_atoms random fraction 0.4 yes all NULL 99\nrun 3\ncreate_atoms 2 single 1.0 1.0 1.0\n"
        "delete_atoms overlap 1.2 all all\nrun 3",
        happened=lambda story: len(story.column("id")) < len(story.column("id", 0)),
    ),
    Row(
        "fix deposit",
        BARRIER + NVE + "fix more all deposit 4 2 3 991 region top near 1.5 attempt 200\nrun 14",
        system=lambda: random_system(atoms=30, lengths=(16.0, 8.0, 8.0), spacing=1.4, seed=8),
        happened=grown,
    ),
    Row(
        "set type",
        "run 0\nset atom 5 type 1\nrun 1 pre no",
        happened=lambda story: retyped(story) and "Neighbor list builds = 0" in story.text,
    ),
    Row(
        "set type to one of another style",
        "run 0\nset atom 5 type 3\nrun 1 pre no",
        system=lambda: small_box(type_names=("O", "H", "Ar")),
        pair="pair_style hybrid/overlay clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n"
        "pair_coeff * * lj/cut 0.01 1.0\n",
        terms=(
            Term(names=("O", "H", None)),
            Term(LennardJones(4.0, {(i, j): (0.01, 1.0) for i in (1, 2, 3) for j in (1, 2, 3)})),
        ),
        happened=retyped,
    ),
    Row(
        "set type from one of another style",
        "run 0\nset atom 1 type 2\nrun 1 pre no",
        system=with_argon,
        pair=NULL_PAIR.replace("hybrid", "hybrid/overlay"),
        refused={"give `run` without `pre no`": always},
    ),
    Row(
        "fix gcmc",
        "fix mc all gcmc 2 10 10 2 4711 3000 0.0 0.3\nfix 1 all nve\ntimestep 0.0001\nrun 9",
        keywords="energy interaction",
        before="atom_modify map array\n",
        happened=lambda story: set(story.column("id")) != set(story.column("id", 0)),
    ),
    Row(
        "fix atom/swap",
        "fix mc all atom/swap 1 10 4711 30000 types 1 2 ke no\nfix 1 all nve\ntimestep 0.0001\nrun 5",
        happened=retyped,
    ),
    Row(
        "fix widom",
        "fix mc all widom 2 10 2 4711 3000\nfix 1 all nve\ntimestep 0.0001\nrun 5",
        keywords="energy interaction",
        before="atom_modify map array\n",
    ),
    Row(
        "neigh_modify exclude type",
        "neigh_modify exclude type 1 1\n" + NVE + "run 4",
        terms=(Term(excluded=oxygen_pairs),),
        happened=said("neigh_modify exclude removes neighbors from the model as well"),
    ),
    Row(
        "neigh_modify exclude group",
        GROUP + "neigh_modify exclude group some some\n" + NVE + "run 4",
        terms=(Term(excluded=low_ids(15)),),
        happened=said("neigh_modify exclude removes neighbors from the model as well"),
    ),
    Row(
        "neigh_modify include",
        GROUP + "atom_modify first some\nneigh_modify include some\nrun 0",
        # The second is LAMMPS's own, which finds a ghost atom outside of the group first on some numbers of ranks.
        refused={
            "use a group that has them, or leave the command out": always,
            "Neighbor include group not allowed with ghost neighbors": always,
        },
    ),
    Row(
        "comm_modify group",
        GROUP + "atom_modify first some\ncomm_modify group some\nrun 0",
        refused={"use a group that has them, or leave the command out": always},
    ),
    Row(
        "special_bonds with weight 0",
        NVE + "run 4",
        atom_style="bond",
        refused={"use `special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100`": always},
    ),
    Row(
        "special_bonds 1.0e-100",
        "special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100\n" + NVE + "run 6",
        atom_style="bond",
        happened=moved,
    ),
    Row(
        "compute group/group",
        GROUP + "compute gg some group/group all\nthermo_style custom step c_gg\nrun 0",
        refused={"use compute clebsch with a group, or clebsch/atom": always},
    ),
    Row(
        "compute pair/local",
        "compute l all pair/local eng\ncompute s all reduce sum c_l inputs local\nthermo_style custom step c_s\nrun 0",
        refused={"Pair style does not support compute pair/local": always},
    ),
    Row(
        "rerun",
        NVE + "dump r all custom 3 {key}.rerun id type x y z\ndump_modify r sort id format float %.17g\nrun 6\n"
        "undump r\nunfix 1\nrerun {key}.rerun dump x y z",
        happened=moved,
    ),
    Row(
        "restart, written on another number of ranks",
        NVE + "run 5",
        earlier=NVE + "run 5\nwrite_restart {key}.restart\n",
        start="read_restart {key}.restart\n",
        happened=moved,
    ),
    Row(
        "restart, written during a run on another number of ranks",
        NVE + "run 5",
        earlier=NVE + "restart 4 {key}.restart\nrun 4\n",
        start="read_restart {key}.restart.4\n",
        happened=moved,
    ),
    Row(
        "partitions",
        "variable p world 1 2\nvelocity all create 3000 471${{p}} loop geom\ntimestep 0.0001\nfix 1 all nve\nrun 8",
        ranks=(2, 4),
        partition={2: "2x1", 4: "2x2"},
        happened=moved,
    ),
    Row(
        "NEB",
        "variable p world 1 2 3 4\nfix neb all neb 1.0\nmin_style quickmin\ntimestep 0.0002\n"
        "neb 0.0 0.0 4 4 2 final {key}.final",
        before="atom_modify map array\n",
        ranks=(4,),
        partition={4: "4x1"},
        unlike=lambda part: () if part in (0, 3) else ("forces",),  # the replicas between have springs
        refused=KOKKOS_MINIMIZER,
        happened=moved,
    ),
    Row("several LAMMPS in one process", NVE + "run 4\nrun 4", in_python=True, happened=moved),
]
