// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/mm.h>

void probe(struct vm_fault *vmf);

void probe(struct vm_fault *vmf)
{
	release_fault_lock(vmf);
}
