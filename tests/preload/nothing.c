// SPDX-License-Identifier: BSD-2-Clause
/* Linked statically, it has no dynamic linker that could preload anything. */
int main(void)
{
	return 0;
}
