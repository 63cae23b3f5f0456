select penstock.create_outbox('from_flyway');
