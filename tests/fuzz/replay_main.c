/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over files instead of under a fuzzer, so that seeds and
 * past crashes are part of every test run. Arguments: files and directories
 * (not entered recursively). Exit 0 when every one of them could be read.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fail(const char *path)
{
	fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
	return -1;
}

/* The target gets a block of exactly the file's size, so that a sanitizer sees reads past its end. */
static int replay_file(const char *path)
{
	struct stat st;
	FILE *f = fopen(path, "rb");
	if (!f)
		return fail(path);
	if (fstat(fileno(f), &st) != 0) {
		fclose(f);
		return fail(path);
	}
	size_t size = (size_t)st.st_size;
	uint8_t *data = malloc(size ? size : 1);
	int result = data && fread(data, 1, size, f) == size ? 1 : fail(path);
	fclose(f);
	if (result == 1)
		LLVMFuzzerTestOneInput(data, size);
	free(data);
	return result;
}

/* Files replayed, or -1. */
static int replay_directory(const char *path)
{
	struct dirent **entry;
	int n = scandir(path, &entry, NULL, alphasort), done = 0;
	if (n < 0)
		return fail(path);
	for (int i = 0; i < n; i++) {
		char file[4096];
		struct stat st;
		snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
		free(entry[i]);
		if (done < 0 || stat(file, &st) != 0 || !S_ISREG(st.st_mode))
			continue;
		done = replay_file(file) < 0 ? -1 : done + 1;
	}
	free(entry);
	return done;
}

int main(int argc, char **argv)
{
	int total = 0;
	for (int i = 1; i < argc; i++) {
		struct stat st;
		if (stat(argv[i], &st) != 0)
			return fail(argv[i]), EXIT_FAILURE;
		int n = S_ISDIR(st.st_mode) ? replay_directory(argv[i]) : replay_file(argv[i]);
		if (n < 0)
			return EXIT_FAILURE;
		total += n;
	}
	printf("%d inputs replayed\n", total);
	return EXIT_SUCCESS;
}
