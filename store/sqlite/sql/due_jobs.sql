select seq from penstock_later
 where queue_id = ? and due <= ?
 order by due
 limit ?
