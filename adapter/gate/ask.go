package gate

import (
	"context"
	"strings"
	"sync"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// subscriptionKey is where khatru has the name of the subscription that it answers: what
// [khatru.GetSubscriptionID] reads.
const subscriptionKey = 1

// asking is a context that khatru's hooks take for that of a subscription.
func asking(ctx context.Context, subscription string) context.Context {
	return context.WithValue(ctx, subscriptionKey, subscription) //nolint:staticcheck // it is khatru's
}

// answer has a REQ answered by the hooks of a khatru relay, in the order in which that calls them; only that nobody but
// the Gate knows of the subscription afterwards. Whatever becomes of it there is an answer.
func (c *conn) answer(ctx context.Context, s *sub, filters []nostr.Filter) {
	relay := c.g.ear.relay
	var stored sync.WaitGroup
	for _, f := range filters {
		if reason := c.find(ctx, relay, s, f, &stored); reason != "" {
			if strings.HasPrefix(reason, "auth-required:") {
				khatru.RequestAuth(ctx)
			}
			s.stop(nil)
			c.heard(write(labelClosed, nameOf(s.number), quoted(reason)))
			stored.Wait()
			return
		}
	}
	stored.Wait()
	c.heard(write(labelEOSE, nameOf(s.number)))
}

// find has the relay look for what is stored, and says why it does not.
func (c *conn) find(ctx context.Context, relay *khatru.Relay, s *sub, f nostr.Filter, stored *sync.WaitGroup) (refusal string) {
	for _, overwrite := range relay.OverwriteFilter {
		overwrite(ctx, &f)
	}
	if f.LimitZero {
		return ""
	}
	for _, reject := range relay.RejectFilter {
		if is, msg := reject(ctx, f); is {
			return nostr.NormalizeOKMessage(msg, "blocked")
		}
	}
	for _, query := range relay.QueryEvents {
		found, err := query(ctx, f)
		if err != nil {
			c.say(notice(err.Error()))
			continue
		}
		if found != nil {
			stored.Go(func() { c.found(ctx, relay, s, found) })
		}
	}
	return ""
}

func (c *conn) found(ctx context.Context, relay *khatru.Relay, s *sub, found <-chan *nostr.Event) {
	for e := range found {
		for _, overwrite := range relay.OverwriteResponseEvent {
			overwrite(ctx, e)
		}
		text, err := e.MarshalJSON()
		if err != nil {
			c.unwritten(e, err)
			continue
		}
		c.heard(write(labelEvent, nameOf(s.number), text))
	}
}
