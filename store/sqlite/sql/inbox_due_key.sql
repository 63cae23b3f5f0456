select key from {schema}.held where inbox_id = {inbox} and due <= {clock} and ({none} or not {key in keys}) order by due, n limit 1
