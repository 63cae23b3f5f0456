alter table _adopt_row
    rename column alone to out_of_order; -- waits for nobody of its parked key
