# SPDX-License-Identifier: Apache-2.0
#
# frontier.awk: awk -F '\t' -v svg=FILE -f frontier.awk RESULTS: the tables of what
# tests/bench/frontier.sh has noted, on standard output, and its plot, in FILE ("": no
# plot). A line of RESULTS: part, settings, cut, method, seed; accuracy; bytes on the wire
# and elements per batch of activations up, down, gradients up, down; seconds per batch;
# the parameters' digest. Elements are those of the tensors without an insertion and
# without padding that does not cross; bits per element are 8 * bytes / elements.
#
# Differences are means over the seeds that raw has, too. A method is on the frontier
# where no other has fewer bits (of all four directions together) and a mean as high.

function bits_of(up, down) { # columns of bytes
	return $(up + 1) + $(down + 1) > 0 ? 8 * ($up + $down) / ($(up + 1) + $(down + 1)) : 0
}

$1 != "" && NF >= 15 {
	group = $1 "\t" $2 "\t" $3
	row = group "\t" $4
	if (!(group in known)) { known[group] = 1; group_name[++groups] = group }
	if (!(row in seeds)) { seeds[row] = 0; count[group]++; method_of[group, count[group]] = $4 }
	seeds[row]++
	if ($4 == "raw") raw[group, $5] = $6
	seed_of[row, seeds[row]] = $5
	accuracy[row, seeds[row]] = $6
	if ($6 == "nan") { diverged[row]++; next }
	runs[row]++
	sum[row] += 100 * $6
	list[row] = list[row] sprintf("%s%.2f", list[row] == "" ? "" : " ", 100 * $6)
	act[row] += bits_of(7, 9)
	grad[row] += bits_of(11, 13)
	elements = $8 + $10 + $12 + $14
	all[row] += elements > 0 ? 8 * ($7 + $9 + $11 + $13) / elements : 0
}

# Means, and differences from raw with the same seeds.
function settle(row, group,  i, r) {
	if (!runs[row]) return
	sum[row] /= runs[row]; act[row] /= runs[row]; grad[row] /= runs[row]; all[row] /= runs[row]
	for (i = 1; i <= seeds[row]; i++) {
		r = raw[group, seed_of[row, i]]
		if (accuracy[row, i] == "nan" || r == "" || r == "nan") continue
		from_raw[row] += 100 * (accuracy[row, i] - r)
		compared[row]++
	}
	if (compared[row]) from_raw[row] /= compared[row]
}

# Whether no other method of the group is as good with fewer bits of that kind: all, act, grad.
function on_frontier(group, row, bits,  i, other) {
	if (!runs[row] || diverged[row]) return 0
	for (i = 1; i <= count[group]; i++) {
		other = group "\t" method_of[group, i]
		if (other == row || !runs[other] || diverged[other]) continue
		if (bits[other] <= bits[row] && sum[other] >= sum[row] && (bits[other] < bits[row] || sum[other] > sum[row])) return 0
	}
	return 1
}

# Order of the group's methods by their bits.
function sort(group, bits, order,  i, k, t) {
	for (i = 1; i <= count[group]; i++) order[i] = group "\t" method_of[group, i]
	for (i = 2; i <= count[group]; i++)
		for (k = i; k > 1 && bits[order[k - 1]] < bits[order[k]]; k--) { t = order[k]; order[k] = order[k - 1]; order[k - 1] = t }
}

function print_table(group,  p, i, row, order, name) {
	split(group, p, "\t")
	printf "%s, %s, cut %s: bits per element on the wire, accuracy in percent\n", p[1], p[2], p[3]
	print "| method | activations | gradients | all | of each seed | mean | from `raw` | frontier |"
	print "|---|---:|---:|---:|---|---:|---:|---|"
	sort(group, all, order)
	for (i = 1; i <= count[group]; i++) {
		row = order[i]
		name = substr(row, length(group) + 2)
		if (!runs[row]) { printf "| `%s` | | | | diverged | | | |\n", name; continue }
		printf "| `%s` | %.3f | %.3f | %.3f | %s%s | %.2f | %s | %s |\n", name, act[row], grad[row], all[row], list[row],
			diverged[row] ? ", " diverged[row] " diverged" : "", sum[row],
			compared[row] ? sprintf("%+.2f", from_raw[row]) : "", on_frontier(group, row, all) ? "yes" : ""
	}
	print ""
}

# The method that is best where it is worst of all groups, among those with at most so many bits both ways that have run with
# the most seeds; "": there is none.
function best_of(first, last, limit, only,  i, g, m, row, least, fewest, top, method) {
	method = ""
	for (i = 1; i <= count[group_name[first]]; i++) {
		m = method_of[group_name[first], i]
		if (only != "" && index(m, only) == 0) continue
		least = 1e9
		for (g = first; g <= last; g++) {
			row = group_name[g] "\t" m
			if (!compared[row] || diverged[row] || act[row] > limit || grad[row] > limit) { least = "none"; break }
			if (from_raw[row] < least) least = from_raw[row]
			if (g == first || compared[row] < fewest) fewest = compared[row]
		}
		if (least == "none" || (method != "" && fewest < best_seeds)) continue
		if (method == "" || fewest > best_seeds || least > top) { top = least; best_seeds = fewest; method = m }
	}
	best_points = top
	return method
}

function verdict(what, first, last, limit, wanted, only,  m) {
	m = best_of(first, last, limit, only)
	if (m == "") printf "OPEN  %s, at most %s bits both ways: no method with so few bits has run beside raw without diverging\n", what, limit
	else printf "%s  %s, at most %s bits both ways: `%s` %+.2f points from raw (%d seed%s), wanted %+d or better\n",
		(best_points >= wanted ? "PASS" : "FAIL"), what, limit, m, best_points, best_seeds, best_seeds == 1 ? "" : "s", wanted
}

function print_verdicts(  g, p) {
	for (g = 1; g <= groups; g++) {
		split(group_name[g], p, "\t")
		verdict(p[1], g, g, 4.25, -1, "")
		verdict(p[1], g, g, 3, -2, "")
		if (p[1] == "text") verdict(p[1] " with a bottleneck", g, g, 0.5, -2, "bottleneck:")
	}
	if (groups > 1) {
		verdict("one method everywhere", 1, groups, 4.25, -1, "")
		verdict("one method everywhere", 1, groups, 3, -2, "")
	}
}

# --- the plot: a column of panels for each group, activations above, gradients below --------------------------------------

function family(m) {
	if (m ~ /bottleneck:/) return "bottleneck"
	if (m ~ /^insert/) return "other insertion"
	if (m ~ /hadamard/) return "hadamard"
	if (m ~ /budget/) return "block, budget"
	if (m ~ /^block/) return "block"
	if (m ~ /^(mx|nv)fp/) return "mx, nvfp4"
	if (m ~ /^uniform/) return "uniform"
	if (m ~ /^sortquant/) return "sortquant"
	if (m ~ /^kmeans/) return "kmeans"
	if (m ~ /^(topk|poweriter|downsample)/) return "topk, poweriter"
	if (m ~ /^(qsgd|nuqsgd|terngrad|alq|amq)/) return "random rounding"
	return "others"
}

function paint_of(name) {
	if (!(name in paint)) { paint[name] = colours[++families]; family_name[families] = name }
	return paint[name]
}

function px(x) { return left + 330 * (log(x) - log(low_bits)) / (log(high_bits) - log(low_bits)) }
function py(y) { return upper + 230 * (high - (y < low ? low : y)) / (high - low) }

function line(x1, y1, x2, y2, style) {
	printf "<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\" %s/>\n", x1, y1, x2, y2, style > svg
}

function words(x, y, anchor, text) {
	printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text > svg
}

function draw_axes(title,  b, y, step) {
	line(left, upper, left, upper + 230, "stroke=\"black\"")
	line(left, upper + 230, left + 330, upper + 230, "stroke=\"black\"")
	words(left, upper - 8, "start", title)
	for (b = 0.125; b <= high_bits; b *= 2)
		if (b >= low_bits) {
			line(px(b), upper, px(b), upper + 230, "stroke=\"#eee\"")
			words(px(b), upper + 245, "middle", b)
		}
	step = high - low > 12 ? 2 : 1
	for (y = -100; y <= high; y += step)
		if (y >= low) {
			line(left, py(y), left + 330, py(y), "stroke=\"" (y == 0 ? "#888" : "#eee") "\"")
			words(left - 5, py(y) + 4, "end", sprintf("%+d", y))
		}
}

# Filled: a mean inside of the panel; hollow: below it. Square: with rans.
function draw_point(row, x, m,  y, colour, style, title) {
	y = from_raw[row]
	colour = paint_of(family(m))
	style = sprintf("fill=\"%s\" stroke=\"%s\"", y < low ? "white" : colour, colour)
	title = sprintf("<title>%s: %.3f bits, %+.2f points</title>", m, x, y)
	if (m ~ /[+]rans/) printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" %s>%s</rect>\n", px(x) - 3.5, py(y) - 3.5,
		style, title > svg
	else printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" %s>%s</circle>\n", px(x), py(y), style, title > svg
}

function short_name(m) {
	gsub(/insert=|insert-up=|,start=pca|bits=|size=|dim=|format=/, "", m)
	return m
}

# Steps between the methods of the frontier, which have numbers; their names are below the panel.
function draw_frontier(group, bits,  i, row, order, path, number) {
	sort(group, bits, order)
	path = ""
	for (i = count[group]; i >= 1; i--) {
		row = order[i]
		if (!compared[row] || from_raw[row] < low || !on_frontier(group, row, bits)) continue
		path = path sprintf("%s%.1f %.1f", path == "" ? "M" : "L", px(bits[row]), py(from_raw[row]))
		words(px(bits[row]), py(from_raw[row]) - 7, "middle", ++number)
		words(left, upper + 252 + 13 * number, "start", sprintf("%d  %s: %.2f bits, %+.1f", number,
			short_name(substr(row, length(group) + 2)), bits[row], from_raw[row]))
	}
	if (path != "") printf "<path d=\"%s\" fill=\"none\" stroke=\"#888\" stroke-dasharray=\"3 3\"/>\n", path > svg
}

function draw_panel(group, bits, title,  i, row) {
	draw_axes(title)
	draw_frontier(group, bits)
	for (i = 1; i <= count[group]; i++) {
		row = group "\t" method_of[group, i]
		if (compared[row] && bits[row] > 0) draw_point(row, bits[row], method_of[group, i])
	}
}

function find_ranges(  g, i, row, b, k) {
	low = -2; high = 1; low_bits = 4; high_bits = 40
	for (g = 1; g <= groups; g++)
		for (i = 1; i <= count[group_name[g]]; i++) {
			row = group_name[g] "\t" method_of[group_name[g], i]
			if (!compared[row]) continue
			if (from_raw[row] < low) low = from_raw[row]
			if (from_raw[row] > high) high = from_raw[row]
			for (k = 0; k < 2; k++) {
				b = k ? grad[row] : act[row]
				if (b > 0 && b < low_bits) low_bits = b
				if (b > high_bits) high_bits = b
			}
		}
	low = low < -8 ? -8 : low - 0.5
	high += 0.5
	low_bits *= 0.9
}

function draw(  g, p, i, width) {
	split("#1f77b4 #d62728 #2ca02c #9467bd #ff7f0e #8c564b #e377c2 #17becf #bcbd22 #7f7f7f #000000 #aec7e8", colours, " ")
	find_ranges()
	width = 400 * groups + 180
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"920\" font-family=\"sans-serif\" font-size=\"11\">\n",
		width > svg
	printf "<rect width=\"%d\" height=\"920\" fill=\"white\"/>\n", width > svg
	words(20, 20, "start", "points of accuracy from raw, by bits per element on the wire (logarithmic)")
	for (g = 1; g <= groups; g++) {
		split(group_name[g], p, "\t")
		left = 400 * (g - 1) + 50
		upper = 60
		draw_panel(group_name[g], act, p[1] ": activations")
		upper = 500
		draw_panel(group_name[g], grad, p[1] ": gradients")
	}
	for (i = 1; i <= families; i++)
		printf "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", width - 160, 60 + 18 * i, paint[family_name[i]], family_name[i] > svg
	words(width - 160, 60 + 18 * (i + 1), "start", "square: with rans")
	words(width - 160, 60 + 18 * (i + 2), "start", "hollow: below the plot")
	print "</svg>" > svg
	close(svg)
}

END {
	for (g = 1; g <= groups; g++)
		for (i = 1; i <= count[group_name[g]]; i++) settle(group_name[g] "\t" method_of[group_name[g], i], group_name[g])
	for (g = 1; g <= groups; g++) print_table(group_name[g])
	print_verdicts()
	for (row in compared) points++
	if (svg != "" && points > 1) { draw(); print "plot: " svg }
}
