# SPDX-License-Identifier: Apache-2.0
#
# A manual page (mdoc) from what PROGRAM --help=rows prints (common/options/options.h), for one command or for those of a
# command. Variables: page (gpclient-train), section, summary, date, and more: a file of mdoc for the end, with SEE ALSO.
BEGIN {
	FS = "\t"
	printf ".\\\" Made from the tables of options by deploy/man/pages.awk\n.Dd %s\n.Dt %s %s\n.Os\n", date, toupper(page), section
	printf ".Sh NAME\n.Nm %s\n.Nd %s\n", page, summary
}

function escaped(text) {
	gsub(/\\/, "\\e", text)
	return text ~ /^[.']/ ? "\\&" text : text
}

# A sentence a line, as mdoc has it.
function prose(text) {
	text = escaped(text)
	gsub(/\. +/, ".\n", text)
	gsub(/\n\./, "\n\\\&.", text)
	sub(/[ \t]+$/, "", text)
	return text
}

# As an argument of a macro: no name of a macro, no delimiter.
function argument(text) {
	text = escaped(text)
	gsub(/"/, "\\(dq", text)
	return "\"\\\&" text "\""
}

$1 == "command" {
	commands++
	name[commands] = $2
	synopsis[commands] = $3
}
$1 == "about" { about[commands] = about[commands] (about[commands] ? "\n" : "") ($2 == "" ? ".Pp" : escaped($2)) }
$1 == "example" { example[commands] = example[commands] escaped($2) "\n" }
$1 == "group" {
	body[commands] = body[commands] (listing[commands] ? ".El\n" : "") ".Ss " $2 "\n.Bl -tag -width Ds\n"
	listing[commands] = 1
}
$1 == "option" {
	if (!listing[commands]) {
		body[commands] = body[commands] ".Bl -tag -width Ds\n"
		listing[commands] = 1
	}
	at = index($5, " ")
	flag = substr(at ? substr($5, 1, at - 1) : $5, 3)
	body[commands] = body[commands] ".It Fl \\-" flag (at ? " Ar " argument(substr($5, at + 1)) : "") "\n" prose($6) "\n"
}
$1 == "command-of" && $4 != "" {
	subcommand = $2 "-" $3
	gsub(/ /, "-", subcommand)
	list = list ".It Xr " subcommand " 1\n" prose($4) "\n"
}

END {
	print ".Sh SYNOPSIS"
	for (i = 1; i <= commands; i++)
		printf "%s.Nm %s\n%s\n", (i > 1 ? ".Pp\n" : ""), name[i], escaped(synopsis[i])
	if (list != "")
		print ".Nm " page "\n.Ar COMMAND\n.Op Ar OPTION ..."
	print ".Sh DESCRIPTION"
	for (i = 1; i <= commands; i++) {
		if (commands > 1)
			print ".Ss " name[i]
		print about[i] != "" ? prose(about[i]) : "."
		if (commands > 1 && body[i] != "")
			print ".Pp\nOptions:\n" body[i] ".El"
	}
	if (list != "")
		print "Split learning: the first and last layers of a model run here, the rest on\n.Xr gpserverd 8 .\n" \
		      ".Pp\nThe commands, each with a page of its own:\n.Bl -tag -width Ds\n" list ".El"
	if (commands == 1)
		print ".Sh OPTIONS\n" body[1] ".El"
	while ((getline line < more) > 0) { # EXIT STATUS stands before EXAMPLES, SEE ALSO behind it
		if (line == ".Xr " page " " section " ,") continue # no page refers to itself
		if (line ~ /^\.Sh SEE ALSO/ || seen) { seen = 1; rest = rest line "\n" } else print line
	}
	for (i = 1; i <= commands; i++)
		examples = examples example[i]
	if (examples != "")
		printf ".Sh EXAMPLES\n.Bd -literal\n%s.Ed\n", examples
	printf "%s", rest
}
