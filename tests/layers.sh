#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# layers.sh [TREE]: a folder belongs to a level, and includes only its own level, those that its level links to, and
# what these pass on. The list of levels, with their folders and LINKS, stands once: gp_level and gp_cuda_level in
# CMakeLists.txt are read here as they are. Fails on
#   - an #include in any other direction, also where no compiler looks (#if 0),
#   - an #include that is neither "path/from/the/root.h" of a file that is there, nor <header.h> of a library,
#   - a file in a folder, or of a kind, that CMake compiles for no level, and on a symbolic link,
#   - two source files of one name,
#   - a level that links to one that does not stand before it.
# That the symbols keep to the same directions is checked by the link_NAME programs (tests/CMakeLists.txt).
# Test: tests/layers_cheats.sh
#
# Some levels are several folders, which need each other:
#   common/codec and stages            codec_table.h names every stage; a stage is written over codec_impl.h
#   common/graph and ops               op_table.h names every operation; an operation is written over op.h
#   kernels/cpu/plan and ops           the plan's table has a row for every operation, which runs on the plan's
#   kernels/cuda/plan and ops            buffers; so do the loss and the optimizer of cuda, which its plan calls
#   kernels/cuda/runtime and emulator  gpk.h includes the emulator, whose launches are queued by the emulated runtime,
#                                        which asks the emulator to check its copies
#   ten folders of client                an engine runs a job, which is made of a model, its insertions and codecs; all of
#                                        them tell the log what they did

set -u -o pipefail
cd "${1:-"$(dirname "$0")/.."}" || exit 1

exec perl - <<'PERL'
use strict;
use warnings;

my (%level_of, %folders, %links, %hidden, %may, %has_kernels, %seen);
my ($files, $bad) = (0, 0);

sub complain { print "@_\n"; $bad = 1 }

sub text_of {
	my ($path) = @_;
	open my $file, '<', $path or die "$path: $!\n";
	local $/;
	return <$file> // '';
}

# --- levels ---------------------------------------------------------------------------------------------------------

# Adds what a user of the level may include: what the level LINKS to is passed on, what is PRIVATE is not.
sub add_passed_on {
	my ($level, $into) = @_;
	return if $into->{$level}++;
	add_passed_on($_, $into) for @{$links{$level}};
}

sub reach {
	my ($level) = @_;
	my %reached = ($level => 1);
	add_passed_on($_, \%reached) for @{$links{$level}}, @{$hidden{$level}};
	return \%reached;
}

sub read_levels {
	my $list = text_of('CMakeLists.txt');
	$list =~ s/#.*//g;
	($links{gp_proto}, $level_of{proto}) = ([], 'gp_proto'); # made from proto/*.proto
	while ($list =~ /\bgp_(cuda_)?level\s*\(\s*(\w+)([^()]*)\)/g) {
		my ($kernels, $level, $words) = ($1, "gp_$2", $3);
		complain("$level stands twice in CMakeLists.txt") if $links{$level};
		$has_kernels{$level} = $kernels;
		my ($folders, $public, $private) = ([], [], []);
		my $to = $folders;
		for (split ' ', $words) {
			if (/^(LINKS|PRIVATE)$/) { $to = $1 eq 'LINKS' ? $public : $private }
			elsif ($to == $folders) { push @$to, $_ }
			elsif (/^gp_/) {
				complain("$level links to $_, which does not stand before it") if !$links{$_};
				push @$to, $_;
			}
		}
		for (@$folders) {
			complain("$_ belongs to $level, and is no folder") if !-d;
			complain("$_ belongs to $level and to $level_of{$_}") if $level_of{$_};
			$level_of{$_} = $level;
		}
		($links{$level}, $hidden{$level}) = ($public, $private);
	}
	$may{$_} = reach($_) for keys %links;
}

# --- files ----------------------------------------------------------------------------------------------------------

# The text as a compiler reads it: lines joined at their backslashes, and a space for each comment. Strings stay. Line
# ends that a join took stand behind it, and those of a comment become \x01, so that a complaint names the right line.
sub without_comments {
	my ($text) = @_;
	$text =~ s/^\xEF\xBB\xBF//;
	$text =~ s{((?:[^\n]*\\[^\S\n]*\n)+)([^\n]*)}{
		my ($spliced, $rest) = ($1, $2);
		my $lines = $spliced =~ s/\\[^\S\n]*\n//g;
		$spliced . $rest . "\n" x $lines;
	}ge;
	$text =~ s{
		( (?:u8|[uUL])? R"(?<end>[^()\\\s"]{0,16})\( .*? \)\k<end>" # a raw string
		| [A-Za-z_]\w* | \.?[0-9](?:[eEpP][-+] | '\w | [\w.])*
		| "(?:\\. | [^"\\\n])*" | '(?:\\. | [^'\\\n])*' )
		| //[^\n]* | /\*(?<comment>.*?)(?:\*/|\z)
	}{
		defined $1 ? $1 : ' ' . "\x01" x (($+{comment} // '') =~ tr/\n//)
	}gsex;
	return $text;
}

sub check_quoted {
	my ($where, $here, $target) = @_;
	my ($folder) = $target =~ m{^(\w[\w.+-]*(?:/\w[\w.+-]*)*)/\w[\w.+-]*\.h$};
	my $is_there = -f $target;
	if ($target =~ m{^(proto/\w+)\.}) { # made in the build folder, never in the tree
		$is_there = !-e $target && $target eq "$1.pb-c.h" && -f "$1.proto";
	}
	my $there = defined $folder ? $level_of{$folder} : undef;
	my $what = "$where includes \"$target\"";
	if (!defined $folder || !$is_there) { complain("$what, which is no header's path from the root") }
	elsif (!$there) { complain("$what, which lies in no level") }
	elsif (!$may{$here}{$there}) { complain("$what: $here does not link to $there") }
}

# Both the root and the build folder are searched for <headers>, too.
sub check_angled {
	my ($where, $target) = @_;
	my ($top) = $target =~ m{^(\w[\w.+-]*)(?:/\w[\w.+-]*)*$};
	return if defined $top && !-e $top && $top ne 'CMakeFiles';
	complain("$where includes <$target>, which is no library's header");
}

# A raw string keeps its backslashes at the ends of lines, which without_comments does not know.
sub check_includes {
	my ($file, $here) = @_;
	my $text = text_of($file);
	complain("$file has a byte 0, which a compiler skips") if $text =~ /\0/;
	complain("$file has a raw string and a joined line: only one of them can be read here")
		if $text =~ /\b(?:u8|[uUL])?R"/ && $text =~ /\\[^\S\n]*\n/;
	$text = without_comments($text);
	my $space = qr/[^\S\n]|\x01/;
	while ($text =~ /^(?:$space)*(?:#|%:|\?\?=)(?:$space)*(include\w*|import|embed)\b([^\n]*)/mg) {
		my ($directive, $target) = ($1, $2);
		my $where = "$file:" . (1 + (substr($text, 0, $-[1]) =~ tr/\n\x01//)) . ':';
		if ($directive ne 'include') { complain("$where #$directive is not used here") }
		elsif ($target =~ /^(?:$space)*"([^"]*)"(?:$space)*$/) { check_quoted($where, $here, $1) }
		elsif ($target =~ /^(?:$space)*<([^>]*)>(?:$space)*$/) { check_angled($where, $1) }
		else { complain("$where includes what cannot be read here:$target") }
	}
}

sub check_file {
	my ($file) = @_;
	my ($folder, $name, $kind) = $file =~ m{^(.+)/([^/]+?(?:\.(\w+))?)$};
	$kind //= '';
	return if $kind =~ /^(?:md|cmake|html)$/ || ($name =~ /^\./ && $kind !~ /^(?:c|h|cu|cc)$/);
	my $here = $level_of{$folder};
	if (!$here) { return complain("$file lies in no level: add its folder to one in CMakeLists.txt") }
	if ($kind !~ ($has_kernels{$here} ? qr/^(?:c|h|cu|cc)$/ : qr/^[ch]$/)) {
		return complain("$file is of a kind that $here does not compile");
	}
	complain("$seen{$name} and $file have one name: rename one of them") if $seen{$name};
	$seen{$name} = $file;
	check_includes($file, $here);
	$files++;
}

sub walk {
	my ($folder) = @_;
	opendir my $handle, $folder or die "$folder: $!\n";
	for (map { "$folder/$_" } sort grep { !/^\.\.?$/ } readdir $handle) {
		if (-l) { complain("$_ is a symbolic link") }
		elsif (-d) { walk($_) }
		else { check_file($_) }
	}
}

read_levels();
my %tops = map { m{^([^/]+)} => 1 } grep { $_ ne 'proto' } keys %level_of;
walk($_) for sort keys %tops;
complain("only $files files were looked at") if $files < 100;
print "$files files, ", scalar(keys %links) - 1, " levels: every include keeps to the links of its level\n" if !$bad;
exit $bad;
PERL
