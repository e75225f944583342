/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands for every test of the CUDA device where that is not built in. Not a
 * test by itself; see on_gpu.h.
 */
#include <stdio.h>

int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
