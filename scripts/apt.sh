# shellcheck shell=bash
# Packages of the distribution from suites that this machine does not run. Sourced after scripts/lib.sh.

# own_apt FOLDER: makes FOLDER/apt.conf, with which apt changes nothing of the machine's and needs no root, and sets
# apt_uri to the first package server in use here, apt_keyring, and apt_id to debian or ubuntu. apt checks signatures
# and sums as always. Returns 1, saying why, where that cannot be.
own_apt() {
  local folder=$1
  command -v apt-get >/dev/null || { echo "no apt-get on this machine"; return 1; }
  # shellcheck source=/dev/null
  apt_id=$(. /etc/os-release && echo "$ID")
  case $apt_id in
    debian | ubuntu) apt_keyring=/usr/share/keyrings/$apt_id-archive-keyring.gpg ;;
    *) echo "expected Debian or Ubuntu, got $apt_id"; return 1 ;;
  esac
  rm -rf "$folder"
  mkdir -p "$folder"/{state/lists/partial,cache/archives/partial,empty}
  # Command-line values split at blanks inside apt's own option parser when a path has some: a
  # configuration file with quotes takes any path.
  cat >"$folder/apt.conf" <<CONF
Dir::State "$folder/state";
Dir::Cache "$folder/cache";
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "$folder/empty";
APT::Sandbox::User "";
Acquire::Retries "2";
CONF
  # The machine's sources in use, without security and other side archives.
  # shellcheck disable=SC2016  # apt's placeholders, not the shell's
  apt_uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk '$2 !~ /security|backports/ && $1 !~ /security/ {print $1}' | grep -E '/(debian|ubuntu)[^/]*/?$' | sort -u | sed -n 1p)
  if [[ -z $apt_uri ]]; then
    echo "no package source in use on this machine; apt-get update may be needed"
    return 1
  fi
}
