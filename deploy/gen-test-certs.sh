#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Certificates and tokens to try TLS with, and for the tests. Not for
# production: keys lie unprotected beside each other and live for a month.

set -eu -o pipefail
umask 077

usage() {
	cat <<-END
	usage: deploy/gen-test-certs.sh [--replace] DIR [NAME-OR-ADDRESS...]

	Makes in DIR, which is made where it is missing (files of these names that are
	there are left alone, and nothing is made, unless --replace is given), for 30 days
	from now on; behind that, make them again with --replace:
	  ca.pem                            the CA that both sides trust
	  server.pem, server.key            for localhost, 127.0.0.1, ::1 and the names given
	  client.pem, client.key            a client, urn:gpsplit:edge-1
	  unnamed.pem, unnamed.key          a client without any name: the server knows it by its key
	  expired.pem, expired.key          a client whose certificate has expired
	  foreign-ca.pem                    another CA ...
	  foreign.pem, foreign.key          ... and a client of it
	  foreign-server.pem, .key          ... and a server of it
	  tokens, token                     the server's token file; the token of "edge-1" in it

	  gpserverd --listen 0.0.0.0:4400 --tls-cert DIR/server.pem --tls-key DIR/server.key \\
	            --tls-client-ca DIR/ca.pem --tokens DIR/tokens
	  gpclient train --server NAME:4400 --tls-ca DIR/ca.pem --tls-cert DIR/client.pem \\
	            --tls-key DIR/client.key --token-file DIR/token ...
	END
}

days=30 work=''
all_files=(ca.pem foreign-ca.pem {server,client,unnamed,expired,foreign,foreign-server}.{pem,key} token tokens)

give_up() { # STATUS SENTENCE
	echo "gen-test-certs.sh: $2" >&2
	exit "$1"
}

make_key() { # FILE
	openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

make_ca() { # STEM COMMON-NAME
	make_key "$work/$1.key"
	openssl req -x509 -new -key "$work/$1.key" -subj "/CN=$2" -days $days -out "$1.pem" \
		-addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign'
}

# By "openssl ca", which alone can make one that has expired.
make_cert() { # STEM COMMON-NAME-OR-NOTHING CA EXTENSIONS [START END]
	local dates=(-days "$days")
	[ $# -lt 6 ] || dates=(-startdate "$5" -enddate "$6")
	make_key "$1.key"
	openssl req -new -key "$1.key" -subj "${2:+/CN=$2}/" -out "$work/request.pem"
	printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n%s\n' "$4" >"$work/extensions"
	: >"$work/index"
	openssl ca -batch -notext -config "$work/ca.conf" -in "$work/request.pem" -out "$1.pem" -cert "$3.pem" \
		-keyfile "$work/$3.key" -extfile "$work/extensions" "${dates[@]}"
}

write_ca_config() {
	cat >"$work/ca.conf" <<-END
	[ca]
	default_ca = test
	[test]
	database = $work/index
	new_certs_dir = $work
	rand_serial = yes
	default_md = sha256
	policy = any
	unique_subject = no
	[any]
	commonName = optional
	END
}

alternative_names() { # NAME-OR-ADDRESS...
	local name list='DNS:localhost,IP:127.0.0.1,IP:::1'
	for name in "$@"; do
		case $name in
		*:*) list+=",IP:$name" ;;
		*[!0-9.]*) list+=",DNS:$name" ;;
		*) list+=",IP:$name" ;;
		esac
	done
	echo "subjectAltName=$list"
}

make_all() { # NAME-OR-ADDRESS...
	local server client=extendedKeyUsage=clientAuth
	server=$(printf 'extendedKeyUsage=serverAuth\n%s' "$(alternative_names "$@")")
	write_ca_config
	make_ca ca 'gpsplit test CA'
	make_ca foreign-ca 'foreign test CA'
	make_cert server 'gpsplit test server' ca "$server"
	make_cert foreign-server 'foreign test server' foreign-ca "$server"
	make_cert client edge-1 ca "$(printf '%s\nsubjectAltName=URI:urn:gpsplit:edge-1' "$client")"
	make_cert unnamed '' ca "$client"
	make_cert expired edge-2 ca "$client" 20200101000000Z 20200201000000Z
	make_cert foreign edge-3 foreign-ca "$client"
	openssl rand -hex 24 >token
	printf '# NAME TOKEN\nedge-1 %s\nedge-4 %s\n' "$(cat token)" "$(openssl rand -hex 24)" >tokens
}

# Errors end the script (set -e), which would not hold behind "||": so this is the EXIT trap's to tell.
clean_up() {
	local status=$? address=''
	[ $status -eq 0 ] || address=$(sed -n 's/.*bad ip address.*value=//p' "$work/log" | head -1)
	[ $status -eq 0 ] || [ -n "$address" ] || sed 's/^/gen-test-certs.sh: nothing was made: /' "$work/log" >&2
	rm -rf "$work"
	[ -z "$address" ] || give_up 2 "'$address' is neither a name nor an address of a host"
}

check_names() { # NAME-OR-ADDRESS...
	local name
	for name in "$@"; do
		case $name in
		'' | -* | *[!A-Za-z0-9.:*_-]*) give_up 2 "'$name' is neither a name nor an address of a host" ;;
		esac
	done
}

check_dir() { # DIR REPLACE
	local file
	mkdir -p -- "$1" 2>/dev/null || give_up 3 "cannot make the folder '$1'"
	if [ ! -w "$1" ] || [ ! -x "$1" ]; then
		give_up 3 "cannot write into the folder '$1'"
	fi
	[ -z "$2" ] || return 0
	for file in "${all_files[@]}"; do
		[ ! -e "$1/$file" ] || give_up 3 "$1/$file is there already; choose another folder, or --replace what is there"
	done
}

main() {
	local dir replace=''
	[ "${1:-}" != --replace ] || { replace=yes && shift; }
	case ${1:-} in
	-h | --help) usage && exit 0 ;;
	'' | -*) usage >&2 && exit 2 ;;
	esac
	command -v openssl >/dev/null || give_up 3 "openssl is missing: install it"
	check_names "${@:2}"
	check_dir "$1" "$replace"
	dir=$(cd -- "$1" && pwd)
	shift
	work=$(mktemp -d)
	trap clean_up EXIT
	mkdir "$work/made" && cd "$work/made"
	make_all "$@" >/dev/null 2>"$work/log"
	: >"$work/log"
	mv -f -- "${all_files[@]}" "$dir/"
}

main "$@"
