select key from {schema}.held where inbox_id = {inbox} and id = {id}
