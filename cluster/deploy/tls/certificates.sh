#!/bin/bash
# A private authority, and certificates that it signs for the nodes of one cluster.
#
#   certificates.sh DIRECTORY NODE [NODE...]
#
# NODE is a machine's name or address, or several of one machine with commas: head.example,10.0.0.1.
# Makes DIRECTORY/ca.crt and ca.key once, and DIRECTORY/NODE/tls.crt, tls.key and ca.crt for each node
# that has none. Give each node its own folder, and ca.key to nobody.
set -euo pipefail
umask 077

directory=${1:?certificates.sh DIRECTORY NODE [NODE...]}
shift
: "${1:?at least one node is needed}"
authority_days=${AUTHORITY_DAYS:-3650}
days=${DAYS:-365}

mkdir -p "$directory"
cd "$directory"

if [ ! -e ca.crt ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 \
        -days "$authority_days" -keyout ca.key -out ca.crt -subj "/CN=sweeps cluster authority" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
    echo "made ca.crt and ca.key"
fi

alternatives() { # Names and addresses, as a certificate lists them.
    local name list=
    for name in ${1//,/ }; do
        if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then
            list+="IP:$name,"
        else
            list+="DNS:$name,"
        fi
    done
    echo "${list%,}"
}

for node in "$@"; do
    folder=${node%%,*}
    if [ -e "$folder/tls.crt" ]; then
        echo "$folder has a certificate, which stays"
        continue
    fi
    mkdir -p "$folder"
    # A node is server and client at once; Ray's processes also call it by its loopback address.
    printf '%s\n' "subjectAltName=$(alternatives "$node,localhost,127.0.0.1")" \
        "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" \
        "extendedKeyUsage=serverAuth,clientAuth" >"$folder/extensions"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 \
        -keyout "$folder/tls.key" -out "$folder/request" -subj "/CN=$folder" 2>/dev/null
    openssl x509 -req -sha256 -days "$days" -in "$folder/request" -CA ca.crt -CAkey ca.key \
        -set_serial "0x$(openssl rand -hex 16)" -extfile "$folder/extensions" \
        -out "$folder/tls.crt" 2>/dev/null
    rm "$folder/request" "$folder/extensions"
    cp ca.crt "$folder/ca.crt"
    echo "made $folder/tls.crt and tls.key, for $days days"
done
