package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// askPeer bounds asking one peer for the members, and what it may answer.
	askPeer      = 2 * time.Second
	askPeerBytes = 1 << 20
	// changeMembers bounds taking this member's place anew: the others must have
	// been connected for 5 s before they change anything.
	changeMembers = 30 * time.Second
	// changeAgain is the pause between tries.
	changeAgain = 500 * time.Millisecond
)

// remoteMember is a member as a peer tells of it (etcd's GET /members).
type remoteMember struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"clientURLs"`
}

// published: the member has served before. One of a cluster that is being made
// has a name and no client URLs; one that was added and has not begun has neither.
func (m *remoteMember) published() bool { return len(m.ClientURLs) > 0 }

// rejoin decides how a member without data begins. In a cluster that is being
// made it is a first start: existing is false. Where it has served before, its
// data is lost: the other members take the old one out and a new one in, since
// one that has forgotten its votes must not go on as the old one. members is
// then the cluster to begin with.
func (c *Config) rejoin(ctx context.Context) (members string, existing bool, err error) {
	if _, err := os.Stat(filepath.Join(c.DataDir, "member")); err == nil || len(c.InitialCluster) == 1 {
		return "", false, nil
	}
	list := c.askMembers(ctx)
	mine := "http://" + c.InitialCluster[c.Name]
	at := slices.IndexFunc(list, func(m remoteMember) bool { return slices.Contains(m.PeerURLs, mine) })
	if len(list) == 0 || at >= 0 && list[at].Name != "" && !list[at].published() {
		return "", false, nil
	}
	if at < 0 || list[at].published() {
		if err := c.replaceMember(ctx, list, at, mine); err != nil {
			return "", false, fmt.Errorf("etcd: member %s has no data, and the others have one of that name: taking its place: %w", c.Name, err)
		}
	}
	begin := []string{c.Name + "=" + mine}
	for i, m := range list {
		for _, u := range m.PeerURLs {
			if i != at {
				begin = append(begin, m.Name+"="+u)
			}
		}
	}
	slices.Sort(begin)
	return strings.Join(begin, ","), true, nil
}

// askMembers asks the peers for the cluster's members; none when no peer answers.
func (c *Config) askMembers(ctx context.Context) []remoteMember {
	client := &http.Client{Timeout: askPeer, Transport: &http.Transport{DisableKeepAlives: true}}
	for name, addr := range c.InitialCluster {
		if name == c.Name {
			continue
		}
		list, err := askMembers(ctx, client, addr)
		if err == nil {
			return list
		}
		c.Logger.Debug("etcd: asking a peer for the members", "peer", addr, "error", err)
	}
	return nil
}

func askMembers(ctx context.Context, client *http.Client, addr string) (list []remoteMember, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/members", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /members: expected 200, found %s", resp.Status)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, askPeerBytes)).Decode(&list)
	return list, err
}

// replaceMember takes the old member out, if it is still in, and adds a new one.
func (c *Config) replaceMember(ctx context.Context, list []remoteMember, at int, mine string) error {
	var endpoints []string
	for i := range list {
		if i != at {
			endpoints = append(endpoints, list[i].endpoints()...)
		}
	}
	if len(endpoints) == 0 {
		return errors.New("no other member serves clients")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: askPeer})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // what it was for is done, or has failed
	within, cancel := context.WithTimeout(ctx, changeMembers)
	defer cancel()
	if at >= 0 {
		err := healthy(within, func() error {
			_, err := client.MemberRemove(within, list[at].ID)
			if errors.Is(err, rpctypes.ErrMemberNotFound) {
				return nil // an answer was lost
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("remove member %x: %w", list[at].ID, err)
		}
	}
	err = healthy(within, func() error {
		_, err := client.MemberAdd(within, []string{mine})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // an answer was lost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add %s: %w", mine, err)
	}
	c.Logger.Warn("etcd: the data of this member is gone, a new member takes its place", "member", c.Name)
	return nil
}

// healthy repeats change while the others say that they have not all been
// connected for long enough.
func healthy(ctx context.Context, change func() error) error {
	tick := time.NewTicker(changeAgain)
	defer tick.Stop()
	for {
		err := change()
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// endpoints are where the member serves clients. One that listens on every
// address says no more than that: then it is the host of its peer URL.
func (m *remoteMember) endpoints() (out []string) {
	for _, raw := range m.ClientURLs {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() && len(m.PeerURLs) > 0 {
			if peer, err := url.Parse(m.PeerURLs[0]); err == nil {
				u.Host = net.JoinHostPort(peer.Hostname(), u.Port())
			}
		}
		out = append(out, u.String())
	}
	return out
}
