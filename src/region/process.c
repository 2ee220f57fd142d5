// SPDX-License-Identifier: BSD-2-Clause
/* State of a process's regions, which a forked child begins anew. */
#include "base/process/owner.h"
#include "region/internal.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/watch/watch.h"

static _Atomic int owner;

static void anew(void)
{
	budget_forget();
	keeper_forget();
	gates_forget();
	aliases_forget();
	departures_forget();
	slots_forget();
	regions_forget();
	invites_forget();
	serve_forget();
	watches_forget();
}

void region_adopt(void)
{
	owner_adopt(&owner, anew);
}
