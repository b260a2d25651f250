package gate

import (
	"context"
	"strconv"
	"strings"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// khatruSubscriptionKey is the context key that [khatru.GetSubscriptionID] reads.
const khatruSubscriptionKey = 1

// withSubscription returns a context in which khatru's hooks find the id of the subscription.
func withSubscription(ctx context.Context, subscription string) context.Context {
	return context.WithValue(ctx, khatruSubscriptionKey, subscription) //nolint:staticcheck // it is khatru's
}

// answerREQ answers a REQ with the hooks of a khatru relay. Unlike khatru it calls the hooks for all
// filters before it queries or subscribes, and sends an event once.
func (c *conn) answerREQ(ctx context.Context, s *sub, p *pending, filters []nostr.Filter) {
	relay := c.g.tap.relay
	asked := make([]nostr.Filter, 0, len(filters))
	for _, f := range filters {
		refusal := judge(ctx, relay, &f)
		if refusal == "" {
			asked = append(asked, f)
			continue
		}
		if strings.HasPrefix(refusal, "auth-required:") {
			khatru.RequestAuth(ctx)
		}
		c.refuseREQ(s, refusal)
		return
	}
	c.g.live.listen(s, filters) // khatru also subscribes with filters as hooks have changed them
	sent := make(map[string]struct{})
	var failed error
	for _, f := range asked {
		if f.LimitZero {
			continue
		}
		for _, query := range relay.QueryEvents {
			found, err := query(ctx, f)
			if err != nil && ctx.Err() == nil { // else the client does not wait for it
				failed = err
			}
			if err == nil && found != nil {
				c.sendStored(ctx, s, p, found, sent)
			}
		}
	}
	if failed != nil { // EOSE would mean that the answer is complete
		c.refuseREQ(s, nostr.NormalizeOKMessage(failed.Error(), "error"))
		return
	}
	c.handleAnswer(encodeMessage(labelEOSE, nameOf(s.number)))
}

// refuseREQ ends a subscription. CLOSED goes through khatru, so that an AUTH challenge of a hook
// arrives before it.
func (c *conn) refuseREQ(s *sub, reason string) {
	if c.ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: strconv.FormatUint(s.number, 10), Reason: reason}) != nil {
		c.end(errGone)
	}
}

// judge returns the reason for which the relay refuses a filter, or "".
func judge(ctx context.Context, relay *khatru.Relay, f *nostr.Filter) (refusal string) {
	for _, overwrite := range relay.OverwriteFilter {
		overwrite(ctx, f)
	}
	if f.LimitZero { // no stored events are wanted
		return ""
	}
	for _, reject := range relay.RejectFilter {
		if is, msg := reject(ctx, *f); is {
			return nostr.NormalizeOKMessage(msg, "blocked")
		}
	}
	return ""
}

// maxSent is in remembered events of an answer. More may be sent twice.
const maxSent = 10_000

// sendStored sends stored events when the client has read most of the earlier ones. It occupies no
// shared slot, because the relay does no work for it.
func (c *conn) sendStored(ctx context.Context, s *sub, p *pending, found <-chan *nostr.Event, sent map[string]struct{}) {
	for e := range found {
		p.releaseShared()
		for _, overwrite := range c.g.tap.relay.OverwriteResponseEvent {
			overwrite(ctx, e)
		}
		if _, is := sent[e.ID]; is {
			continue
		}
		if len(sent) < maxSent {
			sent[e.ID] = struct{}{}
		}
		o := outgoing{text: encodeMessage(labelEvent, s.name, []byte(e.String()))}
		_ = c.queue.await(ctx, func() bool { return !c.requests.waits(s.number) || c.put(o, c.g.soft()) })
	}
}
