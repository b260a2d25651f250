package graspsync

// Kinds of events that the packages of this module treat specially.
const (
	KindNote              = 1  // short text note (NIP-10)
	KindVanish            = 62 // request to vanish (NIP-62)
	KindAnnouncement      = 30617
	KindState             = 30618
	KindPatch             = 1617
	KindPullRequest       = 1618
	KindPullRequestUpdate = 1619
	KindIssue             = 1621
	KindDeletion          = 5
	KindGRASPList         = 10317 // the GRASP servers that a user prefers (NIP-34)
)
