#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Certificates and tokens to try TLS with, and for the tests. Not for
# production: keys lie unprotected beside each other and live for a month.

set -eu -o pipefail
umask 077

usage() {
	cat <<-END
	usage: deploy/gen-test-certs.sh DIR [NAME-OR-ADDRESS...]

	Makes in DIR (files that are there are replaced):
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
	local dates=(-days $days)
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

main() {
	case ${1:---help} in
	-h | --help) usage && exit 0 ;;
	-*) usage >&2 && exit 2 ;;
	esac
	command -v openssl >/dev/null || { echo "gen-test-certs.sh: openssl is missing: install it" >&2 && exit 3; }
	mkdir -p "$1" && cd "$1" && shift
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	make_all "$@" >/dev/null 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
}

main "$@"
