-- Tables are made and dropped over another connection, while this transaction waits.
set @penstock_patient = 1 /*M!100300 , session idle_transaction_timeout = 0 */ /*!80000 , session wait_timeout = 28800 */
