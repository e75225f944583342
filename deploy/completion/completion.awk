# SPDX-License-Identifier: Apache-2.0
#
# Completion of the command line from what gpclient and gpserverd print for --help=rows (common/options/options.h), all
# commands one after another. Variables: shell (bash, zsh, fish), program (gpclient, gpserverd).
BEGIN {
	FS = "\t"
	q = "'"
}

function quoted(text) {
	gsub(q, q "\\" q q, text)
	return q text q
}

# A command's words behind the program's name are the key: "train", "codec list", "".
function words(command) {
	return command == program ? "" : substr(command, length(program) + 2)
}

$1 == "command-of" && ($2 == program || index($2, program " ") == 1) {
	parent = words($2)
	children[parent] = children[parent] (children[parent] ? " " : "") $3
	child[++child_count] = parent "\t" $3 "\t" $4
}
$1 == "command" {
	ours = ($2 == program || index($2, program " ") == 1)
	here = words($2)
	if (ours)
		place[++places] = here
}
$1 == "option" && ours {
	flags[here] = flags[here] (flags[here] ? " " : "") "--" $2
	if ($3 == "flag" && index($5, "[no-]"))
		flags[here] = flags[here] " --no-" $2
	if ($3 == "value")
		taking[here] = taking[here] "|--" $2
	if ($4 != "") {
		choices = $4
		gsub(/\|/, " ", choices)
		if ($3 == "value")
			choice[here] = choice[here] "\t\t" quoted(here " --" $2) ") words=" quoted(choices) " ;;\n"
	}
	option[++options] = here "\t" $2 "\t" $3 "\t" $4 "\t" $6
	if ($3 == "flag" && index($5, "[no-]"))
		option[++options] = here "\tno-" $2 "\tflag\t\t" $6
}

function bash_completion(name, i) {
	name = "_" program
	print "# Made from the tables of options by deploy/completion/completion.awk"
	print name "()\n{"
	print "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= i"
	print "\tfor ((i = 1; i < COMP_CWORD; i++)); do"
	print "\t\tcase \"$command ${COMP_WORDS[i]}\" in"
	for (i = 1; i <= child_count; i++) {
		split(child[i], c, "\t")
		key = c[1] == "" ? c[2] : c[1] " " c[2]
		print "\t\t" quoted(c[1] " " c[2]) ") command=" quoted(key) " ;;"
	}
	print "\t\t*) ;;\n\t\tesac\n\tdone"
	print "\tcase \"$command $before\" in"
	for (i = 1; i <= places; i++)
		printf "%s", choice[place[i]]
	print "\tesac"
	print "\tif [ -z \"$words\" ] && [[ $word == -* ]]; then\n\t\tcase $command in"
	for (i = 1; i <= places; i++)
		print "\t\t" quoted(place[i]) ") words=" quoted(flags[place[i]]) " ;;"
	print "\t\t*) words='--help --version' ;;\n\t\tesac\n\telif [ -z \"$words\" ] && [[ $before != --* ]]; then\n\t\tcase $command in"
	for (parent in children)
		print "\t\t" quoted(parent) ") words=" quoted(children[parent]) " ;;"
	print "\t\tesac\n\tfi"
	print "\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}"
	print "complete -o default -F " name " " program
}

# What _arguments has of its own in a description.
function zsh_text(text) {
	gsub(/\\/, "\\\\", text)
	gsub(/\[/, "\\[", text)
	gsub(/\]/, "\\]", text)
	gsub(/:/, "\\:", text)
	return text
}

function zsh_options(where, i, o, kind) {
	for (i = 1; i <= options; i++) {
		split(option[i], o, "\t")
		if (o[1] != where)
			continue
		kind = o[4]
		gsub(/\|/, " ", kind)
		kind = o[3] == "value" ? ":value:" (kind ? "(" kind ")" : "_files") : o[3] == "optional" ? "::value:(" kind ")" : ""
		print "\t\t\t" quoted("--" o[2] (o[3] == "value" ? "=" : o[3] == "optional" ? "=-" : "") "[" zsh_text(o[5]) "]" kind) " \\"
	}
	print "\t\t\t'*:file:_files' ;;"
}

function zsh_completion(i, j, c) {
	print "#compdef " program "\n# Made from the tables of options by deploy/completion/completion.awk"
	print "local command= i\nlocal -a commands"
	print "for ((i = 2; i < CURRENT; i++)); do\n\tcase \"$command ${words[i]}\" in"
	for (i = 1; i <= child_count; i++) {
		split(child[i], c, "\t")
		print "\t" quoted(c[1] " " c[2]) ") command=" quoted(c[1] == "" ? c[2] : c[1] " " c[2]) " ;;"
	}
	print "\tesac\ndone\ncase $command in"
	for (i = 1; i <= places; i++) {
		print "\t" quoted(place[i]) ")\n\t\t_arguments \\"
		zsh_options(place[i])
	}
	for (parent in children) {
		print "\t" quoted(parent) ")\n\t\tcommands=("
		for (j = 1; j <= child_count; j++) {
			split(child[j], c, "\t")
			if (c[1] == parent)
				print "\t\t\t" quoted(c[2] (c[3] ? ":" zsh_text(c[3]) : ""))
		}
		print "\t\t)\n\t\t_describe command commands ;;"
	}
	print "esac"
}

# Whether the command line has the words of a command; without one, whether it has none yet.
function fish_condition(where, w, n, i, text) {
	if (where == "")
		return program == "gpserverd" ? "" : " -n __fish_use_subcommand"
	n = split(where, w, " ")
	for (i = 1; i <= n; i++)
		text = text (i > 1 ? "; and " : "") "__fish_seen_subcommand_from " w[i]
	return " -n " quoted(text)
}

function fish_completion(i, c, o, kind) {
	print "# Made from the tables of options by deploy/completion/completion.awk"
	for (i = 1; i <= child_count; i++) {
		split(child[i], c, "\t")
		print "complete -c " program " -f" fish_condition(c[1]) " -a " c[2] (c[3] ? " -d " quoted(c[3]) : "")
	}
	for (i = 1; i <= options; i++) {
		split(option[i], o, "\t")
		kind = o[4]
		gsub(/\|/, " ", kind)
		kind = o[3] != "value" ? "" : kind ? " -x -a " quoted(kind) : " -r"
		gsub(/\\/, "\\\\", o[5])
		gsub(q, "\\" q, o[5])
		print "complete -c " program fish_condition(o[1]) " -l " o[2] kind " -d " q o[5] q
	}
}

END {
	if (shell == "bash") bash_completion()
	else if (shell == "zsh") zsh_completion()
	else fish_completion()
}
