// SPDX-License-Identifier: BSD-2-Clause
/* The target: it invites a region, and says when that has come. */
#include "tools/migrate/migrate.h"

int target_invite(struct host *h)
{
	const struct kedge_invitation_opts how = { .size = sizeof(how), .node = h->start->node };
	struct kedge_invitation *invitation = NULL;
	struct said s = { .kind = SAY_INVITED };
	int rc = kedge_invitation_open(&how, &invitation, &s.handle), said;

	if (!rc)
		migrate_disguise(h->start->opts, &s.handle);
	said = migrate_say(h->fd, SAY_INVITED, rc, &s);
	if (rc || said)
		return said;
	rc = kedge_invitation_accept(invitation, migrate_accept_ms(h->start->opts),
				     &h->region);
	said = migrate_say(h->fd, SAY_ARRIVED, rc, &s);
	kedge_invitation_close(invitation);
	return said;
}
