-- Jobs that have begun and run again after some microseconds: [seq, microseconds] of each.
insert into penstock_scheduled (queue_id, seq, due)
select {queue}, json_extract(j.value, '$[0]'), {clock} + json_extract(j.value, '$[1]')
  from json_each({later}) j
