// SPDX-License-Identifier: BSD-2-Clause
/* The symbol that a sanitizer is known by, FAKE, and nothing else of it. */
void FAKE(void);

__attribute__((visibility("default"))) void FAKE(void)
{
}
