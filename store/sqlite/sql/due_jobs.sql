select seq from penstock_scheduled
 where queue_id = ? and due <= ?
 order by due
 limit ?
