#!/bin/bash
# Makes up the secrets of compose.yaml, each in a file that only its owner can read.
#
#   ./secrets.sh [DIRECTORY]        ./secrets by default; files that are there already stay
set -euo pipefail
umask 077

directory=${1:-secrets}
mkdir -p "$directory"
chmod 700 "$directory"
cd "$directory"

random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

made() { # FILE, its content on standard input
    if [ -e "$1" ]; then
        cat >/dev/null
        echo "$1 is there already and stays"
    else
        cat >"$1.new"
        mv "$1.new" "$1"
        echo "$1 made"
    fi
}

random | made ray_token
random | made mlflow_password
random | made postgres_password
made mlflow_credentials <<END
[mlflow]
mlflow_tracking_username = admin
mlflow_tracking_password = $(cat mlflow_password)
END
made postgres_passfile <<END
postgres:5432:mlflow:mlflow:$(cat postgres_password)
END
