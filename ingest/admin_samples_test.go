package ingest

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// sampleAdmin continues sampleRequest with requests of tools and consoles.
func sampleAdmin(key int16, row *metadata.Topic) kmsg.Request {
	switch key {
	case 29:
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
		return req
	case 30:
		req := kmsg.NewPtrCreateACLsRequest()
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host, c.Operation, c.PermissionType = 2, "t", 3, "User:a", "*", 3, 3
		req.Creations = append(req.Creations, c)
		return req
	case 31:
		req := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = 1, 1, 1, 1
		req.Filters = append(req.Filters, f)
		return req
	case 34:
		req := kmsg.NewPtrAlterReplicaLogDirsRequest()
		d := kmsg.NewAlterReplicaLogDirsRequestDir()
		d.Dir = testConfig().DataDir
		rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
		rt.Topic, rt.Partitions = row.Name, []int32{0}
		d.Topics = append(d.Topics, rt)
		req.Dirs = append(req.Dirs, d)
		return req
	case 43:
		req := kmsg.NewPtrElectLeadersRequest()
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = row.Name, []int32{0}
		req.Topics = append(req.Topics, rt)
		return req
	case 45:
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = row.Name
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Replicas = []int32{1}
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	case 49:
		req := kmsg.NewPtrAlterClientQuotasRequest()
		e := kmsg.NewAlterClientQuotasRequestEntry()
		e.Entity = append(e.Entity, kmsg.AlterClientQuotasRequestEntryEntity{Type: quotaUser})
		e.Ops = append(e.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: "producer_byte_rate", Remove: true})
		req.Entries = append(req.Entries, e)
		return req
	case 61:
		req := kmsg.NewPtrDescribeProducersRequest()
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = row.Name, []int32{0}
		req.Topics = append(req.Topics, rt)
		return req
	case 75:
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = 2000
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = row.Name
		req.Topics = append(req.Topics, rt)
		return req
	case 46, 48, 50, 65, 66, 71, 74:
		return kmsg.RequestForKey(key)
	case 72:
		req := kmsg.NewPtrPushTelemetryRequest()
		req.ClientInstanceID, req.SubscriptionID = [16]byte{1}, noTelemetry
		return req
	}
	return nil
}

// sampleErrors are the codes that the samples are answered with, where that is
// not 0.
var sampleErrors = map[int16]int16{
	29: kerr.SecurityDisabled.Code, 30: kerr.SecurityDisabled.Code, 31: kerr.SecurityDisabled.Code,
	43: kerr.ElectionNotNeeded.Code,
}

// anyError finds the first error code in an answer, wherever it is.
func anyError(v reflect.Value) int16 {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return anyError(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if c := anyError(v.Index(i)); c != 0 {
				return c
			}
		}
	case reflect.Struct:
		if f := v.FieldByName("ErrorCode"); f.IsValid() && f.Int() != 0 {
			return int16(f.Int())
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				if c := anyError(v.Field(i)); c != 0 {
					return c
				}
			}
		}
	}
	return 0
}
