package embedding

import "context"

type syncedKey struct{}

// Synced marks the context of hooks that are called for an event that came by sync.
func Synced(ctx context.Context) context.Context { return context.WithValue(ctx, syncedKey{}, true) }

// IsSynced reports whether a hook of the relay is called for an event that came by sync.
func IsSynced(ctx context.Context) bool { return ctx.Value(syncedKey{}) != nil }

type submissionKey struct{}

// submission marks the context of a policy that is asked about what somebody publishes right now: the hooks of the
// relay have let it pass.
func submission(ctx context.Context) context.Context {
	return context.WithValue(ctx, submissionKey{}, true)
}

func isSubmission(ctx context.Context) bool { return ctx.Value(submissionKey{}) != nil }
