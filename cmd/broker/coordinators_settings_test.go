package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGroupsHaveSettingsOfTheirOwn: a group's config holds for that group from
// the next heartbeat on, and a setting of all brokers for the others.
func TestGroupsHaveSettingsOfTheirOwn(t *testing.T) {
	brokers := startBrokers(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := client(t, brokers[0].KafkaAddr())
	admin := kadm.NewClient(cl)
	until(t, func() error { _, err := admin.CreateTopic(ctx, 4, 1, nil, "orders"); return err })
	members := map[string]int32{}
	beat := func(group, member string) (*kmsg.ConsumerGroupHeartbeatResponse, error) {
		epoch, known := members[group+"/"+member]
		resp, err := heartbeat(ctx, cl, group, member, epoch, !known)
		if err == nil {
			members[group+"/"+member] = resp.MemberEpoch
		}
		return resp, err
	}
	told := func(group string, want int32) {
		t.Helper()
		until(t, func() error {
			resp, err := beat(group, "m")
			if err == nil && resp.HeartbeatIntervalMillis != want {
				err = fmt.Errorf("heartbeat interval of group %s: expected %d, found %d", group, want, resp.HeartbeatIntervalMillis)
			}
			return err
		})
	}
	told("slow", 5000)
	told("other", 5000)
	alterGroup(ctx, t, cl, "slow", map[string]string{"consumer.heartbeat.interval.ms": "9000"})
	told("slow", 9000)
	told("other", 5000)

	// A setting of all brokers that changes at run time.
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "group.consumer.assignment.interval.ms", Value: kadm.StringPtr("0")}}
	if _, err := admin.AlterBrokerConfigs(ctx, set); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if resp, err := beat("other", "n"); err != nil || resp.MemberEpoch < 3 {
			return fmt.Errorf("group other, second member: %+v, %v", resp, err)
		}
		return nil
	})
	alterGroup(ctx, t, cl, "slow", nil)
	told("slow", 5000)
}

// heartbeat is one ConsumerGroupHeartbeat of a member that subscribes to orders.
func heartbeat(ctx context.Context, cl *kgo.Client, group, member string, epoch int32, join bool) (*kmsg.ConsumerGroupHeartbeatResponse, error) {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = group, member, epoch, -1
	if join {
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 60_000, []string{"orders"}
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	resp, err := r.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// alterGroup makes a group's config what is given; nil removes all of it.
func alterGroup(ctx context.Context, t *testing.T, cl *kgo.Client, group string, config map[string]string) {
	t.Helper()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, name := range []string{"consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.assignment.interval.ms"} {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = name, kmsg.IncrementalAlterConfigOpDelete
		if value, ok := config[name]; ok {
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpSet, &value
		}
		res.Configs = append(res.Configs, c)
	}
	r.Resources = append(r.Resources, res)
	resp, err := r.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("config of group %s: %v", group, err)
	}
}
