select seq from penstock_scheduled
 where queue_id = {queue} and due <= {clock}
 order by due
 limit {most}
