/* SPDX-License-Identifier: BSD-2-Clause */
/* A picture by gnuplot. */
#ifndef TOOLS_COMMON_PLOT_H
#define TOOLS_COMMON_PLOT_H

#include <stdio.h>

#define PLOT_WIDTH  900
#define PLOT_HEIGHT 540

/* Finds out if a picture can be drawn into @file, before its figures are measured.
 * CMD_OK, or CMD_CANNOT with a message. */
int plot_check(const char *file);
/* Draw into @file what @put writes for @of: gnuplot's commands, and the table
 * $data that they draw. The same. */
int plot_draw(const char *file, unsigned int width, unsigned int height,
	      void (*put)(const void *of, FILE *script, FILE *data),
	      const void *of);

#endif /* TOOLS_COMMON_PLOT_H */
