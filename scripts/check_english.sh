#!/bin/bash
# Checks our English. Everything that users read must be free of the words that docs/glossary.md
# refuses. Comments, strings and documents must be free of these words and of the habits in
# scripts/english.txt.
#
# Reads documents and manual pages by paragraph, help texts and messages by string literal, scripts
# by line.
set -u
cd "$(dirname "$0")/.." || exit 1

sources() {
	git ls-files | grep -E "$1"
}

documents() {
	xargs -r awk '
		function flush() { if (text != "") print where ": " text; text = "" }
		FNR == 1 { flush(); skip = 0 }
		/^## Words that are not used/ { skip = 1 }
		skip { next }
		/^[ \t]*$/ || /^[|]/ { flush() }
		text == "" { where = FILENAME ":" FNR }
		{ text = text " " $0 }
		END { flush() }'
}

literals() {
	xargs -r awk -f scripts/list_strings.awk
}

lines() {
	xargs -r grep -HnvE '^[[:space:]]*#'
}

# mark KIND: prefixes every line with the kind of its text.
mark() {
	tr -s ' \t' ' ' | sed "s/^/$1 /"
}

docs='^(README|CHANGELOG|docs/.*)\.md$|^docs/man/'
product='^(interpose|kernels|runtime|trace)/.*\.(c|h|def|cu|inl)$'
shell='^scripts/.*\.sh$|^Makefile$'
own='^scripts/(lint|check_english)\.sh$'
{
	sources "$docs" | documents | mark user
	sources "$product" | literals | mark user
	sources "$shell" | grep -vE "$own" | lines | mark user
	sources "$docs" | documents | mark text
	sources '\.(c|h|def|cu|inl)$' | literals | mark text
	sources "$shell" | grep -vE "$own" | lines | mark text
	sources '\.(c|h|def|cu|inl|map)$' | xargs -r awk -f scripts/list_comments.awk |
		mark comment
	sources '\.(sh|awk|py|mk)$|^Makefile$' |
		xargs -r awk -v hash=1 -f scripts/list_comments.awk |
		mark comment
	sources '\.(c|h|cu|inl)$' | xargs -r perl -CSD -Mopen=:utf8 -ne '
		chomp;
		1 while s/\t/" " x (8 - $-[0] % 8)/e;
		print "$ARGV:$.: \n" if length > 100 && m{^ *(?:\*[ /]|/[*/])|\*/$};
		close ARGV if eof' | mark wide
} | perl -e '
	my (@refused, @habits, %seen, $bad);
	open(my $g, "<", "docs/glossary.md") or die;
	my $in = 0;
	while (<$g>) {
		$in = 1 if /^## Words that are not used/;
		next unless $in && /^\| ([^|]*) \| [^|]* \| `(.*)` \|$/;
		my ($say, $pattern) = ($1, $2);
		$pattern =~ s/\\\|/|/g;
		push @refused, [qr/$pattern/i, $say];
	}
	@refused or die "docs/glossary.md has no table of refused words\n";
	open(my $t, "<", "scripts/english.txt") or die;
	while (<$t>) {
		chomp;
		next if /^(#|$)/;
		my ($pattern, $where, $example, $say) = split /\t/;
		defined $say or die "scripts/english.txt:$.: not four columns\n";
		$example =~ /$pattern/ or
			die "scripts/english.txt:$.: the pattern does not find its example\n";
		push @habits, [qr/$pattern/, $say, $where];
	}
	@habits or die "scripts/english.txt has no habits\n";
	while (<STDIN>) {
		my ($kind, $at, $text) = /^(\w+) ([^:]*:\d+): ?(.*)/ or next;
		if ($kind eq "wide") {
			print "$at: a comment beyond 100 columns\n";
			$bad = 1;
			next;
		}
		my @rules = $kind eq "user" || $kind eq "comment" ? @refused : ();
		push @rules, grep { $kind eq "comment" || $_->[2] eq "all" } @habits
			if $kind ne "user";
		for my $r (@rules) {
			while ($text =~ /$r->[0]/g) {
				my ($from, $to) = ($-[0] > 40 ? $-[0] - 40 : 0, $+[0] + 30);
				my $part = substr($text, $from, $to - $from);
				print "$at: \"...$part...\": not \"$&\": $r->[1]\n";
				$bad = 1;
			}
		}
	}
	exit($bad ? 1 : 0)'
